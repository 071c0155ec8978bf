import random
from collections.abc import Sequence

import pytest

from dpbench.analysis.compare_variants import ComparedCase, Comparison, Comparisons, compare
from dpbench.cases.case import Case
from dpbench.cases.plan import Skip
from dpbench.cases.variants import VariantName
from dpbench.errors import WrongInputError
from dpbench.judge.estimate import Estimate, ratio_of_rounds
from dpbench.records.record import Outcome, Record
from tests.records.making import ENVIRONMENT, case, failed, ok


def rounds(case: Case, *times_s: float, **fields: object) -> list[Record]:
    return [ok(case, number, [time_s], **fields) for number, time_s in enumerate(times_s)]


def only(compared: Comparisons) -> Comparison:
    (comparison,) = compared.comparisons
    return comparison


def by_variant(comparison: Comparison) -> dict[str, ComparedCase]:
    return {row.summary.case.variant: row for row in comparison.rows}


SINGLE = rounds(case("single", "cpu"), 0.1, 0.1)
NAIVE = rounds(case("naive"), 0.2, 0.22)
TUNED = rounds(case("tuned"), 0.1, 0.12)


def test_lanes_that_share_a_device_are_compared_with_naive_and_with_one_device() -> None:
    compared = compare([*TUNED, *NAIVE, *SINGLE])
    comparison = only(compared)
    rows = by_variant(comparison)
    assert list(rows) == ["single", "naive", "tuned"]
    assert comparison.reference == VariantName.NAIVE
    assert rows["tuned"].reference == VariantName.NAIVE
    assert rows["tuned"].ratio == ratio_of_rounds([[0.1], [0.12]], [[0.2], [0.22]])
    assert rows["naive"].ratio == Estimate(1.0, None, None)
    assert rows["single"].percent_of_single == 100
    assert rows["tuned"].percent_of_single == pytest.approx(100 * 0.1 / (0.1 * 0.12) ** 0.5)
    assert {row.percent_of_limit for row in comparison.rows} == {None}
    assert compared.single_device_baselines == ()
    assert compared.environment == ENVIRONMENT


def test_samples_of_different_numbers_of_steps_are_not_compared() -> None:
    def of_20_steps(records: list[Record]) -> list[Record]:
        return [
            one.model_copy(
                update={
                    "case": one.case.model_copy(update={"steps_per_sample": 20}),
                    "samples_s": tuple(16 * sample_s for sample_s in one.samples_s),
                }
            )
            for one in records
        ]

    single, naive, tuned = map(of_20_steps, (SINGLE, NAIVE, TUNED))
    compared = compare([*SINGLE, *NAIVE, *TUNED, *single, *naive, *tuned])
    assert [comparison.setting.steps_per_sample for comparison in compared.comparisons] == [1, 20]
    for comparison in compared.comparisons:
        rows = by_variant(comparison)
        assert {row.summary.case.steps_per_sample for row in rows.values()} == {comparison.setting.steps_per_sample}
        assert rows["tuned"].ratio.value == pytest.approx(((0.1 * 0.12) / (0.2 * 0.22)) ** 0.5)
        assert rows["single"].percent_of_single == 100
    assert compared.comparisons[1].rows[0].summary.step_time_s.value == pytest.approx(0.08)
    alone = only(compare([*tuned, *NAIVE, *SINGLE][:2]))
    assert alone.reference is None
    mixed = compare([*tuned, *NAIVE, *SINGLE])
    assert by_variant(mixed.comparisons[1])["tuned"].ratio is None
    assert by_variant(mixed.comparisons[1])["tuned"].percent_of_single is None


def test_lanes_with_a_device_each_are_held_against_one_devices_share() -> None:
    share = rounds(case("single", "cuda:0", batch=32), 0.08, 0.08)
    lanes = [*rounds(case("torch_dp", "cuda*2"), 0.2, 0.2), *rounds(case("tuned", "cuda*2"), 0.1, 0.1)]
    compared = compare([*lanes, *share])
    comparison = only(compared)
    rows = by_variant(comparison)
    assert list(rows) == ["torch_dp", "tuned"]
    assert comparison.reference == VariantName.TORCH_DP
    assert (rows["tuned"].percent_of_limit, rows["tuned"].percent_of_single) == (pytest.approx(80), None)
    assert [summary.case.batch for summary in compared.single_device_baselines] == [32]


def test_single_with_the_whole_batch_is_a_row_wherever_its_device_is_the_first_lane() -> None:
    records = [*SINGLE, *NAIVE, *TUNED, *rounds(case("tuned", "cpu*4"), 0.3, 0.3)]
    two, four = compare(records).comparisons
    assert list(by_variant(two)) == ["single", "naive", "tuned"]
    assert list(by_variant(four)) == ["single", "tuned"]
    assert four.reference == "tuned"
    assert by_variant(four)["single"].reference == "tuned"


def test_without_the_stock_schemes_the_first_other_scheme_with_times_is_the_reference() -> None:
    ddp, floor = rounds(case("ddp"), 0.3, 0.3), rounds(case("floor"), 0.1, 0.1)
    assert only(compare([*ddp, *TUNED, *floor, *SINGLE])).reference == VariantName.TUNED
    assert only(compare([*ddp, failed(case("tuned"), 0, "crashed", "no"), *floor])).reference == VariantName.DDP
    assert only(compare([*floor, *SINGLE])).reference is None
    assert only(compare(TUNED)).reference is None


def test_single_alone_is_a_comparison_of_its_own() -> None:
    assert list(by_variant(only(compare(SINGLE)))) == ["single"]


def test_the_stock_one_is_the_reference_where_it_has_times() -> None:
    assert only(compare([*NAIVE, *TUNED, *rounds(case("torch_dp"), 0.3, 0.3)])).reference == VariantName.TORCH_DP


def test_the_asked_reference_is_taken_and_one_without_times_leaves_no_ratio() -> None:
    assert only(compare([*NAIVE, *TUNED], reference=VariantName.TUNED)).reference == VariantName.TUNED
    missing = only(compare([*NAIVE, *TUNED], reference=VariantName.DDP))
    assert missing.reference is None
    assert {row.ratio for row in missing.rows} == {None}


def test_a_wrong_result_has_no_ratio_and_is_no_reference() -> None:
    wrong = failed(case("torch_dp"), 0, "wrong_result", "off by 0.3")
    comparison = only(compare([wrong, *NAIVE, *TUNED, *SINGLE]))
    row = by_variant(comparison)["torch_dp"]
    assert (row.summary.outcome, row.ratio, row.percent_of_single) == (Outcome.WRONG_RESULT, None, None)
    assert row.summary.reason == "not the same computation: off by 0.3"
    assert comparison.reference == VariantName.NAIVE


def test_skipped_cases_are_rows_with_their_reason_and_records_go_before() -> None:
    skips = [Skip(case("torch_dp"), "no accelerator"), Skip(case("tuned"), "not this time")]
    rows = by_variant(only(compare([*NAIVE, *TUNED], skips)))
    assert list(rows) == ["torch_dp", "naive", "tuned"]
    assert (rows["torch_dp"].summary.outcome, rows["torch_dp"].summary.reason) == (Outcome.SKIPPED, "no accelerator")
    assert rows["tuned"].summary.outcome is Outcome.OK


def test_a_setting_where_all_was_skipped_is_shown_too() -> None:
    assert [row.summary.reason for row in only(compare([], [Skip(case("ddp"), "no gloo")])).rows] == ["no gloo"]


def test_nothing_compares_to_nothing() -> None:
    assert compare([]) == Comparisons((), (), None, {})


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_records_does_not_matter(seed: int) -> None:
    records = [*SINGLE, *NAIVE, *TUNED]
    for batch in (8, 128):
        records += rounds(case("tuned", "cpu*4", batch=batch), 0.3, 0.3)
    shuffled = random.Random(seed).sample(records, len(records))
    assert [c.setting.setting for c in compare(shuffled).comparisons] == [
        "mlp/tiny|b64|cpu*2|train|float32|random|t2|s0",
        "mlp/tiny|b8|cpu*4|train|float32|random|t2|s0",
        "mlp/tiny|b128|cpu*4|train|float32|random|t2|s0",
    ]


def test_rounds_of_several_runs_count_together_and_a_file_read_twice_counts_once() -> None:
    again = rounds(case("tuned"), 0.3, 0.3, run="another run")
    assert by_variant(only(compare([*TUNED, *again])))["tuned"].summary.rounds_ok == 4
    assert compare([*TUNED, *TUNED]) == compare(TUNED)


def elsewhere(**changes: object) -> Sequence[Record]:
    return rounds(case("naive"), 0.2, 0.2, environment=ENVIRONMENT.model_copy(update=changes))


def test_records_of_different_environments_are_refused_with_fields_and_values() -> None:
    with pytest.raises(WrongInputError) as caught:
        compare([*TUNED, *elsewhere(torch="2.9.0", cores=64)])
    assert str(caught.value) == (
        "environment: the records differ in torch ('2.13.0' / '2.9.0'), cores (2 / 64); "
        "allowed: records of one environment, or --allow-different"
    )


def test_different_environments_are_let_through_when_told_and_returned() -> None:
    compared = compare([*TUNED, *elsewhere(commit="abc")], allow_different=True)
    assert compared.differences == {"commit": (None, "abc")}
    assert by_variant(only(compared))["tuned"].ratio is not None


def test_a_failed_child_without_an_environment_differs_from_none() -> None:
    lost = failed(case("naive"), 0, "crashed", "signal 9").model_copy(update={"environment": None})
    assert compare([lost, *TUNED]).environment == ENVIRONMENT


def test_percentages_are_of_the_fastest_single() -> None:
    compiled = rounds(case("single[compile=default]", "cpu"), 0.05, 0.05)
    rows = by_variant(only(compare([*TUNED, *SINGLE, *compiled])))
    assert list(rows) == ["single", "single[compile=default]", "tuned"]
    assert {row.baseline for row in rows.values()} == {"single[compile=default]"}
    assert rows["single"].percent_of_single == pytest.approx(50)
    assert rows["tuned"].percent_of_single == pytest.approx(100 * 0.05 / (0.1 * 0.12) ** 0.5)
