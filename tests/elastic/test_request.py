"""Plans of faults."""

import pytest

from dpbench.elastic.elastic_record import FaultKind
from dpbench.elastic.request import check_plan, draw_plan, parse_kinds, parse_plan


def test_a_plan_is_read_and_sorted():
    plan = parse_plan("join@40, oom@30:0, kill@12:1,leave@35:1")
    assert [str(fault) for fault in plan] == ["kill@12:1", "oom@30:0", "leave@35:1", "join@40"]


def test_a_drawn_plan_depends_on_its_arguments_alone():
    kinds = parse_kinds("kill,oom,hang,leave,join")
    drawn = draw_plan(3, 50, 4, kinds)
    assert drawn == draw_plan(3, 50, 4, kinds)
    assert [str(fault) for fault in drawn] != [str(fault) for fault in draw_plan(4, 50, 4, kinds)]
    assert [fault.kind for fault in drawn] == list(FaultKind)


@pytest.mark.parametrize("seed", range(50))
def test_a_drawn_plan_is_allowed(seed):
    plan = draw_plan(seed, 8, 2, parse_kinds("kill,oom,join,hang,leave,leave"))
    check_plan(plan, steps=8, ranks=2, max_restarts=6, batch=8)
    assert all(fault.step >= 1 for fault in plan)


def test_a_rank_that_joined_can_fail():
    check_plan(parse_plan("join@1,kill@2:2"), steps=20, ranks=2, max_restarts=2, batch=8)
