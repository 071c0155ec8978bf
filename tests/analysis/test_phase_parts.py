import pytest

from dpbench.analysis.over_rounds import over_rounds
from dpbench.analysis.phases import PhaseSummary, Work, share_of_moves
from dpbench.records.readings import Reading


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
    found = phases(forward=1.0, loss=0.1, backward=2.0, optimiser=0.5)
    works = {part.name: part.work for part in found.parts(devices=2)}
    assert works == {"loss": Work.COMPUTE, "forward": Work.BOTH, "backward": Work.BOTH, "optimiser": Work.COMPUTE}
    assert {part.work for part in found.parts()} == {Work.COMPUTE}
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
