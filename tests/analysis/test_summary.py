import pytest

from dpbench.analysis.summary import Loss, summarise
from dpbench.judge.estimate import Estimate, median_of_rounds
from dpbench.records.record import Outcome
from tests.records.making import METRICS, case, failed, ok, thin


def test_rounds_that_all_worked_have_times_and_no_reason() -> None:
    summary = summarise([thin(case(), 0, [0.1, 0.3, 0.2]), thin(case(), 1, [0.4])])
    assert (summary.outcome, summary.reason, summary.rounds_ok, summary.rounds) == (Outcome.OK, None, 2, 2)
    assert summary.step_times_s == ((0.1, 0.3, 0.2), (0.4,))
    assert summary.step_time_s == median_of_rounds(summary.step_times_s)
    assert summary.items_per_s == pytest.approx(64 / 0.08**0.5 * 1.0, rel=1e-6)


def test_all_times_of_a_summary_are_of_one_step() -> None:
    metrics = METRICS.model_copy(update={"skew_s": (2.0, 4.0, 9.0), "rank_lag_s": (0.0, 6.0)})
    one = thin(case().model_copy(update={"steps_per_sample": 20}), 0, [2.0, 4.0]).model_copy(
        update={"metrics": metrics}
    )
    summary = summarise([one])
    assert summary.step_times_s == ((0.1, 0.2),)
    assert summary.step_time_s == median_of_rounds([(0.1, 0.2)])
    assert summary.phases.skew_s is not None
    assert summary.phases.skew_s.value == 0.2
    assert [lag.value for lag in summary.phases.rank_lag_s] == [0.0, 0.3]


def test_failed_rounds_beside_good_ones_are_told_once_each() -> None:
    records = [ok(case(), 0), failed(case(), 1, "time_out", "120 s"), failed(case(), 2, "time_out", "120 s")]
    records += [failed(case(), 3, "crashed", "signal 9")]
    summary = summarise(records)
    assert (summary.outcome, summary.rounds_ok, summary.rounds) == (Outcome.OK, 1, 4)
    assert summary.reason == "3 of 4 rounds failed: time_out: 120 s; crashed: signal 9"
    assert summary.step_time_s == Estimate(pytest.approx(0.1), None, None)


def test_one_wrong_round_takes_the_times_of_all() -> None:
    summary = summarise([ok(case(), 0), failed(case(), 1, "wrong_result", "gradients are off by 0.3")])
    assert summary.outcome is Outcome.WRONG_RESULT
    assert summary.reason == "not the same computation: gradients are off by 0.3"
    assert (summary.step_time_s, summary.items_per_s, summary.rounds_ok, summary.rounds) == (None, None, 0, 2)


def test_where_every_round_failed_the_first_outcome_and_every_reason_stand() -> None:
    summary = summarise([failed(case(), 0, "out_of_memory", "3 GB"), failed(case(), 1, "out_of_memory", "3 GB")])
    assert (summary.outcome, summary.reason) == (Outcome.OUT_OF_MEMORY, "3 GB")
    summary = summarise([failed(case(), 0, "crashed", "signal 9"), failed(case(), 1, "time_out", "120 s")])
    assert (summary.outcome, summary.reason) == (Outcome.CRASHED, "crashed: signal 9; time_out: 120 s")
    assert summary.step_time_s is None


def test_losses_are_medians_over_the_rounds_that_have_them() -> None:
    losses = [(2.0, 0.5), (3.0, 1.5), (4.0, 1.0)]
    records = [
        ok(case(), i).model_copy(update={"metrics": METRICS.model_copy(update={"loss_first": a, "loss_last": b})})
        for i, (a, b) in enumerate(losses)
    ]
    assert summarise(records).loss == Loss(first=3.0, last=1.0)
    assert summarise([ok(case(), 0)]).loss is None


def test_rounds_with_too_few_samples_are_counted() -> None:
    few = [thin(case(), 0, [0.01] * 19), thin(case(), 1, [0.06] * 16), thin(case("tuned", "cuda*2"), 2, [0.06] * 20)]
    assert [summarise([record]).thin_rounds for record in few] == [1, 1, 1]
    assert summarise([thin(case(), 0, [0.06] * 20), thin(case(), 1, [0.3] * 5), few[0]]).thin_rounds == 1
