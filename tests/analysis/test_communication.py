"""What ranks issued, as counters: the commonest step, what others do beyond it, and where ranks differ."""

import pytest

from dpbench.analysis.communication import communication
from dpbench.gate.count_sides import compare_communication
from dpbench.records.count_record import Place
from dpbench.records.script_record import Issue, Part, RankIssues


def issue(kind="all_reduce", part=Part.BACKWARD, line=1, count=1, size=16, *, exposed=False):
    place = Place(file="train.py", line=line, function="<module>", text=f"line {line}")
    return Issue(
        part=part,
        kind=kind,
        size_bytes=size,
        dtypes="float32",
        is_unaligned=size % 16 > 0,
        is_exposed=exposed,
        place=place,
        count=count,
    )


def steps(*others, number=6):
    """Return a rank with equal steps, the last of which has other issues too."""
    usual = (issue(),)
    return RankIssues(steps=(usual,) * (number - 1) + ((*usual, *others),))


@pytest.mark.parametrize(
    ("ranks", "counters", "differing"),
    [
        ([steps(), steps()], {"step.backward.all_reduce.count": 1}, ()),
        ([steps(issue("barrier", Part.OTHER, size=0))] * 2, {"seldom.other.barrier.count": 1}, (6,)),
        ([steps(issue(size=4))] * 2, {"seldom.backward.all_reduce.unaligned": 1}, (6,)),
        ([steps(issue(count=2, exposed=True))] * 2, {"seldom.backward.all_reduce.exposed": 2}, (6,)),
        ([steps(issue("send")), steps(issue("recv"))], {"seldom.backward.send.count": 1}, (6,)),
        ([steps(), steps(issue("gather"))], {"seldom.backward.gather.count": 1}, (6,)),
    ],
)
def test_counters(ranks, counters, differing):
    counted = communication(ranks)
    assert counters.items() <= counted.by_name().items()
    assert (counted.steps, counted.differing) == (4, differing)


def test_a_step_that_lacks_a_collective_has_a_negative_counter():
    usual, lacking = steps().steps[0], ()
    counted = communication([RankIssues(steps=(usual, usual, usual, lacking, usual))] * 2)
    assert counted.by_name()["seldom.backward.all_reduce.count"] == -1


@pytest.mark.parametrize(
    ("ranks", "line"),
    [
        ([steps(), steps(number=5)], "the ranks took 6 and 5 steps"),
        ([steps(), steps(issue())], "step 6: backward.all_reduce: 1 of 16 bytes on rank 0, 2 of 32 bytes on rank 1"),
        ([steps(), steps(issue("send"))], "step 6: backward.send: 0 of 0 bytes on rank 0, 1 of 16 bytes on rank 1"),
        ([steps(issue(line=2)), steps(issue(line=3))], None),
        ([steps(issue("send")), steps(issue("recv"))], None),
        ([steps(issue("send_object_list")), steps(issue("recv_object_list"))], None),
    ],
)
def test_what_differs_between_ranks_is_named(ranks, line):
    assert communication(ranks).differences == ((line,) if line else ())


def moved(*issues, setup=()):
    return communication([RankIssues(setup=setup, steps=((issue(), *issues),) * 4)] * 2)


@pytest.mark.parametrize(
    ("base", "head", "worse"),
    [
        (moved(), moved(issue("barrier")), {"step.backward.barrier.count": True}),
        (moved(issue("barrier")), moved(), {"step.backward.barrier.count": False}),
        (moved(issue(part=Part.OTHER)), moved(issue(part=Part.FORWARD)), {"step.forward.all_reduce.count": None}),
        (moved(), moved(setup=(issue("broadcast", Part.SETUP),)), {"setup.broadcast.count": None}),
        (moved(issue(size=32)), moved(issue(size=64)), {"step.backward.all_reduce.size_bytes": True}),
        (moved(), moved(), {}),
    ],
)
def test_what_is_worse(base, head, worse):
    changes, blames = compare_communication("train.py", base, head)
    is_worse = {change.counter: change.is_worse for change in changes}
    assert worse.items() <= is_worse.items()
    assert bool(is_worse) is bool(worse)
    assert {blame.counter for blame in blames} == {counter for counter in is_worse if is_worse[counter]}
