"""A step's phases over the rounds of a case, and its parts."""

import pytest

from dpbench.analysis.over_rounds import over_rounds
from dpbench.analysis.phase_summary import PhaseSummary, Work, share_of_moves, summarise_phases
from dpbench.analysis.summary import summarise
from dpbench.records.readings import Reading
from dpbench.records.record import Metrics
from tests.records.making import METRICS, case, ok


def phases(**times):
    figures = {
        name: over_rounds([Reading(reason=value) if isinstance(value, str) else Reading(value=value)])
        for name, value in times.items()
    }
    return PhaseSummary(figures)


STOCK = phases(
    forward=10.0, scatter=1.0, replicate=4.0, parallel_apply=3.0, gather=1.0, loss=0.5, backward=8.0, reduce=2.0
)


def test_parts_do_not_overlap_and_add_up_to_the_step():
    parts = STOCK.parts()
    assert {part.name: part.time_s for part in parts} == {
        "scatter": 1,
        "replicate": 4,
        "parallel_apply": 3,
        "gather": 1,
        "loss": 0.5,
        "forward": 0.5,
        "reduce": 2,
        "backward": 6,
    }
    assert [part.name for part in parts if part.work is Work.MOVE] == ["scatter", "replicate", "gather", "reduce"]
    assert share_of_moves(parts) == pytest.approx(8 / 18)


def test_a_phase_without_parts_stays_whole():
    parts = phases(forward=1.0, scatter="no such method", backward=2.0, optimiser=0.5).parts()
    assert [(part.name, part.time_s) for part in parts] == [("forward", 1), ("backward", 2), ("optimiser", 0.5)]
    assert share_of_moves(parts) is None


def test_a_phase_whose_moves_are_not_known_computes_and_moves():
    summary = phases(forward=1.0, loss=0.1, backward=2.0, optimiser=0.5)
    works = {part.name: part.work for part in summary.parts(devices=2)}
    assert works == {"loss": Work.COMPUTE, "forward": Work.BOTH, "backward": Work.BOTH, "optimiser": Work.COMPUTE}
    assert {part.work for part in summary.parts()} == {Work.COMPUTE}
    assert Work.BOTH not in {part.work for part in STOCK.parts(devices=2)}


def test_parts_that_are_longer_than_their_phase_leave_nothing():
    assert phases(forward=1.0, replicate=1.5).parts()[-1].time_s == 0


def test_without_a_forward_there_are_no_parts():
    assert phases().parts() == phases(forward="the step failed", backward=1.0).parts() == ()


def test_the_largest_saving_is_a_part_if_it_explains_most():
    tuned = phases(forward=6.5, scatter=1.0, replicate=0.5, parallel_apply=3.0, backward=7.5, reduce=1.5)
    saving = tuned.largest_saving(STOCK)
    assert (saving.name, saving.time_s, saving.other_s) == ("replicate", 0.5, 4)
    ddp = phases(forward=4.0, replicate="no such method", backward=7.0, loss=0.4)
    assert ddp.largest_saving(STOCK).name == "forward"
    assert STOCK.largest_saving(ddp) is None
    assert STOCK.largest_saving(phases()) is None


def a_round(**fields: object) -> Metrics:
    return METRICS.model_copy(update=fields)


def test_a_phase_is_the_median_over_rounds() -> None:
    summary = summarise_phases([a_round(phases_s={"forward": time_s, "reduce": "none"}) for time_s in (1.0, 5.0, 2.0)])
    assert summary.phases_s["forward"].value == 2.0
    assert (summary.phases_s["reduce"].value, summary.phases_s["reduce"].reason) == (None, "none")
    assert (summary.skew_s, summary.rank_lag_s, summary.slowest_rank) == (None, (), None)


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
    summary = summarise_phases([a_round(skew_s=skew) for skew in ((1.0, 2.0, 9.0), (4.0,), (6.0, 6.0))])
    assert summary.skew_s is not None
    assert summary.skew_s.value == 4.0


def test_lags_are_by_rank_and_the_slowest_is_named() -> None:
    summary = summarise_phases([a_round(rank_lag_s=lags) for lags in ((0.0, 0.5, 0.2), (0.1, 0.3, 0.2))])
    assert [lag.value for lag in summary.rank_lag_s] == pytest.approx([0.05, 0.4, 0.2])
    assert summary.slowest_rank == 1


def test_the_slowest_ranks_phases_are_its_own_in_every_round() -> None:
    rounds = [
        a_round(rank_lag_s=(0.0, lag), phases_by_rank_s=({"forward": 9.0}, {"forward": seconds}))
        for lag, seconds in ((0.2, 1.0), (0.4, 3.0), (0.0, 5.0))
    ]
    phases_s = summarise_phases(rounds).slowest_phases_s
    assert phases_s is not None
    assert phases_s["forward"].value == 3.0
    assert summarise_phases([a_round(rank_lag_s=(0.0, 0.1))]).slowest_phases_s is None


def test_old_records_have_no_phases() -> None:
    assert summarise_phases([METRICS]).phases_s == {}
