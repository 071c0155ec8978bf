import pytest

from dpbench.analysis.phases import summarise_phases
from dpbench.analysis.summary import summarise
from dpbench.records.record import Metrics
from tests.records.making import METRICS, case, ok


def a_round(**fields: object) -> Metrics:
    return METRICS.model_copy(update=fields)


def test_a_phase_is_the_median_over_rounds() -> None:
    found = summarise_phases([a_round(phases_s={"forward": seconds, "reduce": "none"}) for seconds in (1.0, 5.0, 2.0)])
    assert found.phases_s["forward"].value == 2.0
    assert (found.phases_s["reduce"].value, found.phases_s["reduce"].reason) == (None, "none")
    assert (found.skew_s, found.rank_lag_s, found.slowest_rank) == (None, (), None)


def test_a_phase_disagrees_if_it_is_longer_than_the_step_with_its_spread() -> None:
    rounds = [a_round(phases_s={"forward": seconds, "reduce": 9.0}) for seconds in (0.4, 0.5, 0.6)]
    assert summarise_phases(rounds, longest_step_s=0.45).disagreeing == ("forward",)
    assert summarise_phases(rounds, longest_step_s=0.55).disagreeing == ()
    assert summarise_phases(rounds).disagreeing == ()  # no step is known


def test_the_spread_of_a_step_is_its_interval_or_the_samples_of_its_only_round() -> None:
    metrics = a_round(phases_s={"forward": 0.5})
    few = [ok(case(), number, [step]).model_copy(update={"metrics": metrics}) for number, step in enumerate((0.3, 0.4))]
    one = summarise([ok(case(), 0, [0.3, 0.6, 0.3]).model_copy(update={"metrics": metrics})])
    several = summarise(few)
    assert several.step_time_s is not None
    assert several.phases.longest_step_s == several.step_time_s.high
    assert (one.phases.longest_step_s, one.phases.disagreeing) == (0.6, ())


def test_a_round_without_the_phase_is_counted() -> None:
    forward = summarise_phases([a_round(phases_s={"forward": 1.0}), METRICS]).phases_s["forward"]
    assert (forward.value, forward.rounds, forward.rounds_without) == (1.0, 1, 1)


def test_skew_is_the_median_of_the_rounds_medians() -> None:
    found = summarise_phases([a_round(skew_s=skew) for skew in ((1.0, 2.0, 9.0), (4.0,), (6.0, 6.0))])
    assert found.skew_s is not None
    assert found.skew_s.value == 4.0


def test_lags_are_by_rank_and_the_slowest_is_named() -> None:
    found = summarise_phases([a_round(rank_lag_s=lags) for lags in ((0.0, 0.5, 0.2), (0.1, 0.3, 0.2))])
    assert [lag.value for lag in found.rank_lag_s] == pytest.approx([0.05, 0.4, 0.2])
    assert found.slowest_rank == 1


def test_the_slowest_ranks_phases_are_its_own_in_every_round() -> None:
    rounds = [
        a_round(rank_lag_s=(0.0, lag), phases_by_rank_s=({"forward": 9.0}, {"forward": seconds}))
        for lag, seconds in ((0.2, 1.0), (0.4, 3.0), (0.0, 5.0))
    ]
    found = summarise_phases(rounds).slowest_phases_s
    assert found is not None
    assert found["forward"].value == 3.0
    assert summarise_phases([a_round(rank_lag_s=(0.0, 0.1))]).slowest_phases_s is None


def test_old_records_have_no_phases() -> None:
    assert summarise_phases([METRICS]).phases_s == {}
