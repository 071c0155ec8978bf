"""Schedules made by hand, with known answers."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbench.projection.replay.critical_path import critical_path, shares_of_path
from dpbench.projection.replay.fair import fair_finish_s, fair_shares
from dpbench.projection.replay.fifo import schedule
from dpbench.projection.replay.finish_times import finish_times
from dpbench.projection.replay.tasks import LOCK, Role, Task, Tasks


def tasks(*rows: tuple[str, tuple[str, ...], tuple[int, ...]]) -> Tasks:
    made = Tasks()
    for name, resources, before in rows:
        role = Role.LINK if resources and resources[0].startswith("link") else Role.COMPUTE
        made.add(Task(role, name, resources, {}, before, device=0))
    made.step_ends.append(len(made))
    return made


def test_a_chain_takes_the_sum():
    chain = tasks(("a", ("d",), ()), ("b", ("d",), (0,)), ("c", ("e",), (1,)))
    found = schedule(chain, [1.0, 2.0, 4.0])
    assert found.starts == [0, 1, 3]
    assert found.finishes[-1] == 7


def test_two_tasks_on_two_devices_run_side_by_side():
    found = schedule(tasks(("a", ("d",), ()), ("b", ("e",), ())), [3.0, 5.0])
    assert found.finishes == [3, 5]


def test_two_copies_on_one_link_run_one_after_the_other():
    both = tasks(("a", ("link", "x"), ()), ("b", ("link", "y"), ()))
    found = schedule(both, [3.0, 5.0])
    assert found.finishes == [3, 8]
    assert found.follows[1] == (0,)


def test_the_first_that_is_ready_gets_the_resource():
    # b is ready at 1, c at 2; both want the device that a holds until 10
    made = tasks(("a", ("d",), ()), ("p", ("p",), ()), ("q", ("q",), ()), ("c", ("d",), (2,)), ("b", ("d",), (1,)))
    found = schedule(made, [10.0, 1.0, 2.0, 1.0, 1.0])
    assert found.starts[4] == 10
    assert found.starts[3] == 11


def test_an_idle_device_changes_nothing():
    chain = tasks(("a", ("d",), ()), ("idle", ("e",), ()), ("b", ("d",), (0,)))
    assert schedule(chain, [1.0, 0.0, 2.0]).finishes[2] == 3


def test_the_lock_costs_more_when_it_changes_hands():
    made = tasks(("a", ("t1", LOCK), ()), ("b", ("t2", LOCK), ()), ("c", ("t2", LOCK), (1,)))
    found = schedule(made, [1.0, 1.0, 1.0], handover_s=0.5)
    assert found.handovers == {1}
    assert found.finishes == [1, 2.5, 3.5]


def test_shared_links_are_fair():
    both = tasks(("a", ("link",), ()), ("b", ("link",), ()))
    seconds = [2.0, 4.0]
    # each gets a half until a ends at 4; b has 2 s left then
    assert fair_finish_s(both, schedule(both, seconds), seconds) == pytest.approx(6)


def test_a_star_shares_its_hub():
    assert fair_shares({1: ("up 0", "down 1"), 2: ("up 0", "down 2"), 3: ("up 4", "down 5")}) == {
        1: 0.5,
        2: 0.5,
        3: 1.0,
    }


def test_a_share_that_others_cannot_use_goes_to_the_rest():
    # 1 and 2 share link a; 2 and 3 and 4 share b, so 2 gets a third, and 1 gets two thirds of a
    shares = fair_shares({1: ("a",), 2: ("a", "b"), 3: ("b",), 4: ("b",)})
    assert shares == pytest.approx({1: 2 / 3, 2: 1 / 3, 3: 1 / 3, 4: 1 / 3})


def test_a_copy_alone_takes_its_time():
    one = tasks(("before", ("d",), ()), ("a", ("link",), (0,)), ("after", ("d",), (1,)))
    seconds = [1.0, 2.0, 3.0]
    assert fair_finish_s(one, schedule(one, seconds), seconds) == pytest.approx(6)


def test_short_copies_after_a_long_time_end():
    made = tasks(("before", ("d",), ()), *[("copy", ("link",), (0,))] * 3)
    seconds = [8120033.787316697, 0.7887, 0.09386, 1 / 3]  # their ends are rounded by more than a copy may have left
    assert fair_finish_s(made, schedule(made, seconds), seconds) == pytest.approx(sum(seconds), rel=1e-9)


def test_the_critical_path_is_what_the_length_consists_of():
    made = tasks(("a", ("d",), ()), ("short", ("e",), ()), ("send", ("link",), (0,)), ("b", ("e",), (1, 2)))
    seconds = [5.0, 1.0, 2.0, 3.0]
    found = schedule(made, seconds)
    assert critical_path(made, found) == [0, 2, 3]
    assert dict(shares_of_path(made, found)) == {"compute of device 0": 0.8, "links: send": 0.2}


graphs = st.lists(
    st.tuples(
        st.sets(st.sampled_from(["link 1", "link 2", "d", "e", "t"]), max_size=2),
        st.sets(st.integers(1, 6), max_size=3),
        st.floats(0, 10),
    ),
    min_size=1,
    max_size=30,
)


@given(graphs)
def test_no_task_starts_before_those_it_waits_for(rows):
    made = tasks(
        *(("t", tuple(sorted(r)), tuple({i - b for b in back if b <= i})) for i, (r, back, _) in enumerate(rows))
    )
    seconds = [took for _, _, took in rows]
    found = schedule(made, seconds)
    for i, task in enumerate(made.all):
        assert all(found.finishes[earlier] <= found.starts[i] for earlier in task.before)
    for resource in ("link 1", "link 2", "d", "e", "t"):
        spans = sorted((found.starts[i], found.finishes[i]) for i, t in enumerate(made.all) if resource in t.resources)
        assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))


@given(graphs)
def test_all_draws_at_once_are_as_one_alone(rows):
    made = tasks(
        *(("t", tuple(sorted(r)), tuple({i - b for b in back if b <= i})) for i, (r, back, _) in enumerate(rows))
    )
    seconds = np.array([took for _, _, took in rows])
    found = schedule(made, seconds.tolist())
    finish = finish_times(made, found, np.stack([seconds, 2 * seconds], axis=1))
    assert finish[:, 0] == pytest.approx(found.finishes)
    assert finish[:, 1] == pytest.approx([2 * each for each in found.finishes])


@given(graphs)
def test_fair_links_do_all_the_work_too(rows):
    made = tasks(
        *(("t", tuple(sorted(r)), tuple({i - b for b in back if b <= i})) for i, (r, back, _) in enumerate(rows))
    )
    seconds = [took for _, _, took in rows]
    end = fair_finish_s(made, schedule(made, seconds), seconds)
    assert end >= max(seconds) * (1 - 1e-9)
    assert end <= sum(seconds) * (1 + 1e-9) + 1e-9
