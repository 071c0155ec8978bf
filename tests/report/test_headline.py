import pytest

from dpbench.report.headline import headline, place
from dpbench.results.compare import compare
from dpbench.results.phase_parts import Saving
from tests.report.page.making_page import gpu_records, lane_records, made_case
from tests.results.making import case, failed, ok, thin


def headlines(records):
    return {place(each.setting): headline(each) for each in compare(records).comparisons}


def rounds(variant, *times_s, devices="cpu*2"):
    return [ok(case(variant, devices), number, [time_s]) for number, time_s in enumerate(times_s)]


def test_a_decided_winner_is_named_with_its_lead_its_limit_and_its_bottleneck():
    records = [each for each in gpu_records((256,), (8,)) if str(each.case.variant) in ("torch_dp", "tuned", "single")]
    found = headlines(records)["convnet/small, batch 256 on cuda*8"]
    assert found.answer.startswith("Use tuned here: ")
    assert found.answer.endswith(" items a second.")
    assert "tuned takes 0.4" in found.certainty
    assert "times the time of torch_dp" in found.certainty
    assert "over 5 rounds" in found.certainty
    assert "% of the limit, one device's time for its share alone" in found.limit
    assert found.bottleneck.startswith("The largest part of its step is ")
    assert "It saves most time in replicate: " in found.bottleneck


def test_an_undecided_winner_names_its_rivals_and_the_rounds_that_would_decide():
    found = headlines([*rounds("naive", 2, 2), *rounds("tuned", 1, 1.05, 0.95), *rounds("ddp", 1.05, 1.1, 1.0)])
    (only,) = found.values()
    assert only.answer.startswith("The fastest is not decided between tuned and ddp: tuned has the shortest median")
    assert "The next, ddp, takes 1.05 [" in only.certainty
    assert "times the time of tuned; their order is not decided." in only.certainty
    assert only.advice.startswith("Next: --rounds ")


def test_collectives_and_a_phase_with_its_moves_are_named():
    found = {"forward": 1.0, "backward": 3.0, "collectives": 2.0, "hidden": 0.5}
    records = [
        each.model_copy(update={"metrics": each.metrics.model_copy(update={"phases_s": found})})
        for each in rounds("ddp", 4, 4)
    ]
    (only,) = headlines([*records, *rounds("naive", 8, 8)]).values()
    assert only.bottleneck == (
        "The largest part of its step is backward + moves, 75 %. "
        "Its collectives take 2.00 s of a profiled step, 25 % of it hidden behind computing."
    )


@pytest.mark.parametrize(("other_s", "is_named"), [(1.04, False), (1.2, True)])
def test_a_saving_is_named_if_it_is_a_twentieth_of_the_step(other_s, is_named):
    records = [
        each.model_copy(update={"metrics": each.metrics.model_copy(update={"phases_s": {"forward": forward_s}})})
        for variant, forward_s in (("tuned", 1.0), ("naive", other_s))
        for each in rounds(variant, forward_s, forward_s)
    ]
    (only,) = headlines(records).values()
    assert ("It saves most time in" in only.bottleneck) == is_named


@pytest.mark.parametrize(("forward_s", "is_longer"), [(1.09, False), (1.3, True)])
def test_phases_longer_than_the_step_explain_nothing(forward_s, is_longer):
    found = {"forward": forward_s, "scatter": 0.5 * forward_s}
    records = [
        each.model_copy(update={"metrics": each.metrics.model_copy(update={"phases_s": found})})
        for each in rounds("tuned", 1.0, 1.1, 0.9)
    ]
    slow = [
        each.model_copy(update={"metrics": each.metrics.model_copy(update={"phases_s": {"forward": 7.0}})})
        for each in rounds("naive", 8, 8, 8)
    ]
    (only,) = headlines([*records, *slow]).values()
    assert ("The largest part" in only.bottleneck) != is_longer
    assert ("It saves most time in" in only.bottleneck) != is_longer
    assert ("moving data is a large part" in only.advice) != is_longer
    assert (only.bottleneck == "Its phases disagree with its step, so they explain nothing.") == is_longer


def test_equal_schemes_are_not_worth_more_rounds():
    (only,) = headlines([*rounds("tuned", 1, 1.1, 0.9), *rounds("naive", 1, 1.1, 0.9)]).values()
    assert only.advice == "Next: take whichever is simpler; even 200 rounds like these would not decide it."


def test_one_device_is_the_answer_if_it_is_faster_for_sure():
    (only,) = headlines(lane_records()).values()
    assert only.answer.startswith("Use one device here: the fastest scheme on cpu*2, ")
    assert "the time of floor" in only.limit
    assert only.advice == "Next: stay on one device, or try a larger batch."


@pytest.mark.parametrize(
    ("single_s", "words"),
    [(1.0, "; one device may be faster."), (2.0, " times the time of one device.")],
)
def test_one_device_is_named_whether_it_may_be_faster_or_not(single_s, words):
    single = [ok(case("single", "cpu"), number, [single_s * (1 + number / 20)]) for number in range(3)]
    (only,) = headlines([*rounds("tuned", 1, 1.05, 0.95), *rounds("naive", 3, 3.1, 3), *single]).values()
    assert only.answer.startswith("Use tuned here")
    (said,) = [each for each in only.certainty.split(". ") if "of one device" in each]
    assert f"{said}.".endswith(words)


def test_a_row_with_too_few_samples_is_neither_ranked_nor_cited():
    few = [thin(case("naive"), number, [0.5] * 2) for number in range(3)]
    (only,) = headlines([*rounds("tuned", 1, 1.05, 0.95), *rounds("ddp", 3, 3.1, 3), *few]).values()
    assert only.answer.startswith("Use tuned here")
    assert "naive" not in " ".join(only.sentences)


def test_the_least_work_is_not_undercut_for_sure():
    scheme, twice = rounds("tuned", 0.8, 1.2, 0.9, devices="cpu*2"), rounds("tuned", 2, 2.1, 2)
    floor = rounds("floor", 1, 1, 1)
    (near,) = headlines([*scheme, *floor]).values()
    (far,) = headlines([*twice, *floor]).values()
    assert near.limit.endswith("the least work that a scheme can do on it; their order is not decided.")
    assert far.limit.endswith("the least work that a scheme can do on it.")


def test_one_round_is_not_sure():
    (only,) = headlines([*rounds("tuned", 1), *rounds("naive", 2)]).values()
    assert "One round was measured" in only.certainty
    assert only.advice == "Next: measure with --rounds 5."


def test_a_single_scheme_is_no_winner():
    (only,) = headlines(rounds("tuned", 1, 1)).values()
    assert only.answer.startswith("Only tuned was measured: 1.00 s a step")


def test_without_times_the_outcomes_are_the_answer():
    (only,) = headlines([failed(case("tuned"), 0, "crashed", "it fell over")]).values()
    assert only.sentences == ("No answer: no scheme has times; see the outcomes.",)


@pytest.mark.parametrize(
    ("devices", "text"), [("cuda*8", "cuda*8"), ("cuda:1+cuda:2", "cuda:1+cuda:2"), ("cpu*2", "cpu*2")]
)
def test_devices_are_named_shortly(devices, text):
    assert place(made_case("tuned", devices, 64)) == f"convnet/small, batch 64 on {text}"


def test_a_whole_phase_is_told_from_its_parts():
    assert [Saving(name, 1, 2).is_whole for name in ("forward", "backward", "optimiser", "replicate", "loss")] == [
        *(True, True, False, False, False),
    ]
