import pytest
import torch

from dpbench.cases.case import Case
from dpbench.measure.lane_threads import candidates, set_fastest
from dpbench.variants.variant import Variant
from tests.fakes import ScriptedClock


def case(threads, lanes):
    return Case(variant="naive", workload="mlp/tiny", batch=64, devices=["cpu"] * lanes, threads=threads)


@pytest.mark.parametrize(("threads", "lanes", "per_lane"), [(8, 2, 4), (8, 3, 2), (2, 4, 1), (1, 1, 1)])
def test_concurrent_lanes_divide_the_total(threads, lanes, per_lane):
    assert candidates(case(threads, lanes), Variant(wrap=None)) == (per_lane,)


def test_lanes_in_sequence_may_use_all_threads_or_one():
    alone = Variant(wrap=None, concurrent_lanes=False)
    assert candidates(case(8, 2), alone) == (8, 1)
    assert candidates(case(1, 2), alone) == (1,)


@pytest.mark.parametrize(("step_s", "fastest"), [({4: 1.0, 1: 2.0}, 4), ({4: 2.0, 1: 1.0}, 1)])
def test_the_faster_count_stays_set(step_s, fastest):
    before, clock = torch.get_num_threads(), ScriptedClock()
    try:
        chosen = set_fastest((4, 1), lambda: clock.advance(step_s[torch.get_num_threads()]), clock)
        assert chosen == torch.get_num_threads() == fastest
    finally:
        torch.set_num_threads(before)


def test_a_single_count_is_set_without_a_trial():
    before = torch.get_num_threads()
    try:
        assert set_fastest((1,), lambda: pytest.fail("tried"), ScriptedClock()) == torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
