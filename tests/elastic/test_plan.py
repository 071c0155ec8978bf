"""Plans of faults."""

import pytest

from dpbench.elastic.elastic_record import FaultKind
from dpbench.elastic.request import check_plan, draw_plan, parse_kinds, parse_plan
from dpbench.errors import WrongInputError


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


@pytest.mark.parametrize("text", ["", "kill", "kill@1", "kill@x:0", "burn@1:0", "kill@1:0,", "kill@-1:0", "join@1:0"])
def test_a_text_that_is_no_plan(text):
    with pytest.raises(WrongInputError, match=r"^plan: '.*' is no fault; allowed: "):
        parse_plan(text)


@pytest.mark.parametrize(
    ("plan", "ranks", "restarts", "field"),
    [
        ("kill@20:0", 2, 3, "plan: kill@20:0 has no step 20"),
        ("kill@1:2", 2, 3, "plan: kill@1:2 has no rank 2"),
        ("hang@1:0", 1, 3, "plan: hang@1:0 would never be noticed"),
        ("leave@1:0", 1, 3, "plan: leave@1:0 would leave no rank"),
        ("leave@1:1,leave@2:0", 2, 3, "plan: leave@2:0 would leave no rank"),
        ("leave@1:0,kill@2:1", 2, 3, "plan: kill@2:1 has no rank 1; allowed: ranks 0 to 0"),
        ("join@1", 8, 3, "plan: join@1 makes 9 ranks, which share a batch of 8"),
        ("kill@1:0,oom@1:1", 2, 3, "plan: two faults at step 1"),
        ("kill@1:0,kill@2:0", 2, 1, "max-restarts: 1 is less than the 2 faults"),
    ],
)
def test_a_plan_that_cannot_be_carried_out(plan, ranks, restarts, field):
    with pytest.raises(WrongInputError) as caught:
        check_plan(parse_plan(plan), steps=20, ranks=ranks, max_restarts=restarts, batch=8)
    assert str(caught.value).startswith(field)
    assert "; allowed: " in str(caught.value)


def test_an_unknown_kind():
    with pytest.raises(
        WrongInputError, match=r"^faults: 'burn' is no kind of fault; allowed: kill, oom, hang, leave, join$"
    ):
        parse_kinds("kill,burn")


def test_more_faults_than_steps():
    with pytest.raises(WrongInputError, match=r"^faults: 2 faults do not fit into 2 steps"):
        draw_plan(0, 2, 2, parse_kinds("kill,kill"))


def test_a_rank_that_joined_can_fail():
    check_plan(parse_plan("join@1,kill@2:2"), steps=20, ranks=2, max_restarts=2, batch=8)
