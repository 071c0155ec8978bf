"""The spans of a drawing."""

from dpbench.elastic.elastic_record import EventKind
from dpbench.elastic.lanes import LanePhase, lane_faults, lane_spans
from tests.elastic.making import event, steps, two_lives


def spans(lane: str) -> list[tuple[str, float, float]]:
    return [(s.phase, s.begin_ns / 1e9, s.end_ns / 1e9) for s in lane_spans(two_lives()) if s.lane == lane]


def test_a_rank_starts_twice_and_takes_the_lost_steps_again():
    assert spans("rank 0") == [
        ("start", 1, 1),
        ("steps", 1, 10.01),
        ("start", 15, 19),
        ("restore", 19, 20.5),
        ("redone", 20.5, 22.5),
        ("steps", 22.5, 36),
    ]


def test_the_killed_rank_ends_at_its_fault():
    assert spans("rank 1")[:3] == [("start", 2, 2), ("steps", 2, 10), ("start", 16, 18)]
    (fault,) = lane_faults(two_lives())
    assert (fault.lane, fault.name, fault.at_ns) == ("rank 1", "kill@7", 10_000_000_000)


def test_the_first_lane_has_the_parts_of_the_outage_in_order():
    found = spans("outage")
    assert [phase for phase, _, _ in found] == list(LanePhase)[:6]
    assert found[0][1:] == (10, 11)
    assert lane_spans(two_lives())[0].lane == "outage"


def test_checkpoints_lie_within_the_steps_and_a_torn_one_is_left_out():
    own = [
        event(0, EventKind.RESTORE_END, step=0),
        *steps(1, 0, 5),
        event(6, EventKind.CHECKPOINT_BEGIN, step=5),
        event(6.5, EventKind.CHECKPOINT_END, step=5),
        event(7, EventKind.CHECKPOINT_BEGIN, step=6),
    ]
    found = [(s.phase, s.begin_ns, s.end_ns) for s in lane_spans(own)]
    assert found == [
        (LanePhase.STEPS, 0, 7_000_000_000),
        (LanePhase.CHECKPOINT, 6_000_000_000, 6_500_000_000),
    ]


def test_no_events_have_no_spans():
    assert lane_spans(()) == lane_faults(()) == ()
