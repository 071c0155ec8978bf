"""Which of head's work counts beside the times that its steps report."""

import pytest

from dpbench.engine.messages import SideName
from dpbench.jobs.forks import Taken
from dpbench.jobs.hidden_work import set_up_ratio, with_hidden_work

BASE, TWIN, HEAD = SideName.BASE, SideName.TWIN, SideName.HEAD


def blocks(own_ms, wall_ms=None, outside_ms=None, others_ms=(), number=24):
    """Blocks of two steps. By default both clocks of the coordinator agree with the side's."""
    wall_ms, outside_ms = wall_ms or own_ms, outside_ms or wall_ms or own_ms
    others_s = {name: ms / 1e3 for name, ms in dict(others_ms).items()}
    return [Taken((own_ms / 2e3,) * 2, own_ms / 1e3, wall_ms / 1e3, outside_ms / 1e3, others_s)] * number


def counted_ms(head, base=None, twin=None, *, is_borrowed=False):
    """Milliseconds of head's first block, and whether a note says why they are more than it reports."""
    base = blocks(10, number=len(head)) if base is None else base
    lengthened, note = with_hidden_work({BASE: base, HEAD: head, TWIN: twin or base}, is_borrowed=is_borrowed)
    assert len(lengthened) == len(head)
    return pytest.approx(sum(lengthened[0]) * 1e3), note


@pytest.mark.parametrize(
    ("head_ms", "outside_ms", "others_ms", "expected_ms"),
    [
        (10, 11.0, 0.0, 10),
        (10, 11.1, 0.0, 11.1),
        (10, 11.5, 0.6, 10),  # base takes as long between its steps
        (10, 12.0, 0.6, 11.4),
        (10, 11.1, -5.0, 11.1),  # base's waits were subtracted twice
        (0.1, 1.1, 0.0, 0.1),  # a tenth of base's step
        (0.1, 1.2, 0.0, 1.2),
        (90, 99.0, 0.0, 90),
        (5, 10.0, 0.0, 10),  # half of it was reported
    ],
)
def test_work_between_heads_steps_counts(head_ms, outside_ms, others_ms, expected_ms):
    """Base takes 10 ms. Two disturbed blocks of eight change nothing."""
    base = blocks(10, outside_ms=10 + others_ms, number=8)
    head = [*blocks(head_ms, outside_ms=outside_ms, number=6), *blocks(head_ms, outside_ms=9000, number=2)]
    ms, note = counted_ms(head, base)
    assert ms == expected_ms
    assert (note is None) == (expected_ms == head_ms)
    assert counted_ms(head[:3], base[:3])[1] is None


@pytest.mark.parametrize(
    ("wall_ms", "others_ms", "expected_ms"),
    [
        (11, 10, 10),
        (12, 10, 12),  # a helper that is not seen has the core
        (40, 10, 40),
        (40, 30, 10),  # other processes load the machine: head's waits are 1.5 times the others'
        (60, 30, 10 + 20),  # half of the others' waits more than these is usual
    ],
)
def test_waits_that_only_head_has_count(wall_ms, others_ms, expected_ms):
    """Each clock has stopped while its side waited for a core, so that all report 10 ms."""
    ms, note = counted_ms(blocks(10, wall_ms, 10), blocks(10, others_ms, 10))
    assert ms == expected_ms
    assert ("waited" in (note or "")) == (expected_ms != 10)


def test_waits_in_fewer_than_half_of_the_blocks_do_not_count():
    head = [*blocks(10, 40, 10, number=11), *blocks(10, number=13)]
    assert counted_ms(head) == (10, None)
    assert counted_ms(blocks(10, 40, 10, number=19)) == (10, None)  # too few blocks to tell chance from head


def test_a_longer_block_may_wait_longer():
    assert counted_ms(blocks(20, 50, 20), blocks(10, 20, 10)) == (20, None)


def test_work_of_head_in_the_blocks_of_others_counts():
    busy = blocks(10, others_ms={HEAD: 5})
    ms, note = counted_ms(blocks(10), busy)
    assert ms == 20  # 5 ms in the block of base and 5 in that of the twin
    assert "went on for 10 ms while other sides were measured" in note
    assert counted_ms(blocks(10), busy, is_borrowed=True)[0] == 20


def test_work_that_base_leaves_to_others_blocks_too_does_not_count():
    usual = blocks(10, others_ms={BASE: 5, HEAD: 5, TWIN: 5})
    assert counted_ms(usual, usual) == (10, None)


def test_a_borrowed_benchmark_may_set_itself_up_between_its_samples():
    assert counted_ms(blocks(10, 40), is_borrowed=True) == (10, None)


@pytest.mark.parametrize(
    ("base_ms", "head_ms", "ratio"),
    [(15, 15, 1.0), (15, 20, 2.0), (20, 15, 0.5), (10.5, 10.9, None), (10.5, 12, 2.0)],
)
def test_the_time_between_calls_of_a_borrowed_benchmark_is_its_set_up(base_ms, head_ms, ratio):
    """A call takes 10 ms; a set-up of less than a tenth of that counts as a tenth."""
    base, head = blocks(10, base_ms), blocks(10, head_ms)
    assert set_up_ratio({BASE: base, TWIN: base, HEAD: head}) == (ratio and pytest.approx(ratio))
