"""What tier 0 counts beside a step: later steps, and work on the host's tensors."""

import gc
import time

import pytest
import torch

from dpbench.measure.counted.host_work import HostWork
from dpbench.measure.counted.more_steps import count_more_steps, leaping_clocks, whole_units
from dpbench.records.count_record import MoreSteps, Phase


@pytest.fixture
def without_collections():
    others = gc.callbacks[:]  # of hypothesis, for one
    gc.callbacks.clear()
    gc.disable()
    yield
    gc.enable()
    gc.callbacks.extend(others)


class Steps:
    """A step that does something in every `seldom`-th call, and executes a line more in each if it `grows`."""

    def __init__(self, seldom: int = 0, grows: bool = False) -> None:
        self.count, self.seldom, self.grows = 0, seldom, grows

    def other(self) -> None:
        gc.collect(0)

    def __call__(self) -> None:
        self.count += 1
        if self.seldom and self.count % self.seldom == 0:
            self.other()
        if self.grows:
            for _ in range(self.count):
                pass


@pytest.mark.usefixtures("without_collections")
@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (Steps(), MoreSteps(seldom_calls=0, collections=0, later_lines=0)),
        # lines: steps 1 to 6 and 28 to 33; calls: one step, then 20
        (Steps(seldom=13), MoreSteps(seldom_calls=2, collections=2, later_lines=0)),
        (Steps(grows=True), MoreSteps(seldom_calls=0, collections=0, later_lines=6 * 27)),
    ],
    ids=["alike", "seldom", "growing"],
)
def test_later_steps_are_compared_with_the_first(step, expected):
    more = count_more_steps(step, 20)
    assert (more.seldom_calls, more.collections) == (expected.seldom_calls, expected.collections)
    assert more.later_lines in (expected.later_lines, 2 * expected.later_lines)  # a turn is one line, or two


def test_a_copy_counts_by_its_bytes_and_a_view_does_not():
    x = torch.ones(4, 8)
    with HostWork() as work:
        work.enter(Phase.FORWARD)
        x.view(-1), x.t()
        x.clone()
        work.enter(Phase.BACKWARD)
        x.t().contiguous().add_(1)
        work.enter(Phase.FORWARD)
        x.clone()
    assert work.operators == {Phase.FORWARD: 2, Phase.BACKWARD: 2}
    assert work.written_bytes == {Phase.FORWARD: 2 * x.nbytes, Phase.BACKWARD: 2 * x.nbytes}


def test_clocks_leap_where_the_wrapper_has_imported_them(monkeypatch):
    monkeypatch.setattr("dpbench.parallel.policy.now_s", time.monotonic, raising=False)
    from dpbench.parallel import policy

    before_s = policy.now_s(), time.time()
    with leaping_clocks() as leap:
        leap(), leap()
        assert [
            round(after - before) for after, before in zip((policy.now_s(), time.time()), before_s, strict=True)
        ] == [20, 20]
    assert policy.now_s() - before_s[0] < 10


@pytest.mark.parametrize(
    ("per_step", "units"), [(-3.0, 0), (0.0, 0), (0.85, 0), (0.95, 1), (1.0, 1), (1.85, 1), (2.95, 3)]
)
def test_memory_counts_in_whole_units_of_which_a_tenth_may_be_missing(per_step, units):
    assert whole_units(per_step * 64, 64) == units * 64
