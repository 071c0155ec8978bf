"""`Policy(shares="auto")`: the choice by measuring."""

import copy
import threading
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from dpbench.parallel import DataParallel, Policy, chunk_weights
from dpbench.parallel.shares import measured
from dpbench.parallel.shares.measured import OTHER_STEPS, SAMPLES, HostTiming, MeasuredShares
from dpbench.parallel.shares.sizes import chunk_sizes
from dpbench.parallel.shares.trials import MAX_TRIALS, MIN_GAIN, ShareTrial, balanced, equal_shares, next_shares
from tests.parallel.models import Call, mlp

CPU4 = ["cpu"] * 4
MOST_STEPS = (MAX_TRIALS + 2) * (SAMPLES + 3)
"""More steps than all trials take."""


def decided(lanes_s, step_s, lanes=4, batch=64):
    """The trials on a machine whose times follow from the shares, and the shares that are fixed."""
    trials = []
    while not (following := next_shares(trials, lanes, batch)).is_fixed:
        trials.append(ShareTrial(following.shares, step_s(following.shares, len(trials)), lanes_s(following.shares)))
        assert len(trials) <= MAX_TRIALS + 1
    return trials, following.shares


def lanes_with(fixed_s, items_s):
    """Times of lanes: a fixed part, and one that grows with the share."""
    return lambda shares: tuple(
        fixed + each * share for fixed, each, share in zip(fixed_s, items_s, shares, strict=True)
    )


@pytest.mark.parametrize("late", [0, 1, 3])
def test_a_slow_lane_gets_less_until_the_lanes_end_together(late):
    lanes_s = lanes_with([0.01] * 4, [3.0 if lane == late else 1.0 for lane in range(4)])
    trials, shares = decided(lanes_s, lambda shares, _: 0.1 + max(lanes_s(shares)))
    assert shares[late] == pytest.approx(0.1, abs=0.03)
    assert max(lanes_s(shares)) < 1.2 * min(lanes_s(shares))
    assert trials[-1].shares == trials[0].shares == equal_shares(4)


def test_lanes_that_end_together_stay_equal_after_one_trial():
    trials, shares = decided(lambda _: (1.0, 1.02, 0.99, 1.01), lambda *_: 1.0)
    assert (len(trials), shares) == (1, equal_shares(4))


def test_equal_shares_stay_if_steps_do_not_get_shorter():
    """As with a lane that is late whatever its items, or lanes that run one after the other."""
    trials, shares = decided(lambda _: (2.0, 1.0, 1.0, 1.0), lambda *_: 1.0)
    assert (len(trials), shares) == (2, equal_shares(4))
    trials, shares = decided(lambda _: (2.0, 1.0, 1.0, 1.0), lambda _, trial: 1.0 - trial * 0.9 * MIN_GAIN)
    assert (len(trials), shares) == (2, equal_shares(4))


def test_a_machine_that_becomes_faster_meanwhile_is_seen():
    _, shares = decided(lambda _: (2.0, 1.0, 1.0, 1.0), lambda _, trial: 0.8**trial)
    assert shares == equal_shares(4)


def test_a_batch_whose_chunks_would_not_change_needs_no_further_trial():
    lanes_s = lanes_with([0.0] * 4, [1.2, 1.0, 1.0, 1.0])
    assert len(decided(lanes_s, lambda shares, _: max(lanes_s(shares)), batch=4)[0]) == 1
    assert len(decided(lanes_s, lambda shares, _: max(lanes_s(shares)), batch=400)[0]) > 1


times = st.floats(1e-4, 10.0)


@given(st.data(), st.integers(2, 8), st.integers(1, 300))
def test_whatever_is_measured_the_choice_is_made_and_all_lanes_keep_a_share(data, lanes, batch):
    draw = st.lists(times, min_size=lanes, max_size=lanes).map(tuple)
    _, shares = decided(lambda _: data.draw(draw), lambda *_: data.draw(times), lanes, batch)
    assert len(shares) == lanes
    assert min(shares) > 0
    assert sum(shares) == pytest.approx(1)
    assert sum(chunk_sizes(batch, lanes, shares)) == batch


def test_times_of_zero_change_nothing():
    trial = ShareTrial(equal_shares(2), 1.0, (0.0, 1.0))
    assert balanced(trial) == trial.shares


class Clock:
    """Timings of a machine whose lane 0 takes three times as long for each item."""

    def __init__(self, shares_now):
        self.now_s, self.shares_now, self.reached = 0.0, shares_now, True

    def begin(self):
        return FakeTiming(self)

    def lanes_s(self):
        return lanes_with([0.0] * 4, [3.0, 1.0, 1.0, 1.0])(self.shares_now() or equal_shares(4))


class FakeTiming:
    def __init__(self, clock):
        self.clock, self.begin_s, self.ends = clock, clock.now_s, ()

    def around(self, calls):
        self.ends = self.clock.lanes_s()
        return calls

    def is_whole(self):
        return bool(self.ends)

    def is_reached(self):
        return self.clock.reached

    def lanes_s(self):
        return self.ends

    def until_s(self, following):
        return following.begin_s - self.begin_s


class Loop:
    """Steps of a training loop on a `MeasuredShares`, without a wrapper."""

    def __init__(self, **options):
        self.clock = Clock(lambda: self.shares.shares)
        self.shares = MeasuredShares([torch.device("cpu")] * 4, begin_timing=self.clock.begin, **options)

    def step(self, items=64, lanes=4, fails=False):
        self.shares.begin(torch.empty(items, 2), 0)
        self.shares.around([None] * lanes)
        if not fails:
            self.shares.end()
        self.clock.now_s += max(self.clock.lanes_s())
        return self.shares.shares

    def steps(self, count=MOST_STEPS, **options):
        return [self.step(**options) for _ in range(count)]


def changes(seen):
    return [one for one, other in zip(seen, [..., *seen], strict=False) if one != other]


def test_a_choice_is_made_once_and_stays():
    loop = Loop()
    seen = loop.steps()
    assert loop.shares.is_fixed
    assert seen[: SAMPLES + 2] == [None] * (SAMPLES + 2)
    assert 3 <= len(changes(seen)) <= MAX_TRIALS + 2
    assert seen[-1][0] == pytest.approx(0.1, abs=0.03)
    assert loop.steps(200) == seen[-1:] * 200


def test_shares_do_not_change_while_they_are_frozen():
    frozen = False
    loop = Loop(is_frozen=lambda: frozen)
    loop.steps(SAMPLES)
    frozen = True
    assert loop.steps() == [None] * MOST_STEPS
    assert loop.steps(items=32) == [None] * MOST_STEPS
    frozen = False
    loop.step()
    shares = loop.step()
    assert shares is not None
    frozen = True
    assert loop.steps() == [shares] * MOST_STEPS
    frozen = False
    loop.steps()
    assert loop.shares.is_fixed


def test_forwards_without_grad_mode_or_with_other_inputs_do_not_count():
    loop = Loop()
    for _ in range(MOST_STEPS):
        with torch.no_grad():
            loop.step()
        loop.step(items=5)
        loop.step()
    assert loop.shares.shares is None
    assert not loop.shares.is_fixed


def test_a_short_batch_now_and_then_does_not_disturb():
    loop = Loop()
    for _ in range(MOST_STEPS):
        loop.steps(4)
        loop.step(items=5, lanes=3)
    assert loop.shares.is_fixed
    assert loop.shares.shares is not None


def test_after_many_inputs_of_other_shapes_these_are_measured():
    loop = Loop()
    loop.steps(2 * SAMPLES)
    assert loop.shares.shares is not None
    seen = loop.steps(OTHER_STEPS + 1, items=32)
    assert seen[0] is not None
    assert seen[-1] is None
    loop.steps(items=32)
    assert loop.shares.is_fixed


def test_failed_forwards_and_those_on_fewer_lanes_do_not_count():
    loop = Loop()
    loop.steps(fails=True)
    loop.steps(lanes=3)
    assert loop.shares._trials == []
    assert loop.shares._samples == []
    loop.steps()
    assert loop.shares.is_fixed


def test_marks_that_are_not_reached_are_read_later():
    loop = Loop()
    loop.clock.reached = False
    assert loop.steps() == [None] * MOST_STEPS
    assert loop.shares._samples == []
    loop.clock.reached = True
    loop.steps()
    assert loop.shares.is_fixed


class SlowAtZero(nn.Module):
    """Sleeps for each item of its chunk, on the lane with the first item, marked by a zero, four times as long."""

    def __init__(self):
        super().__init__()
        self.inner = mlp()

    def forward(self, x):
        time.sleep(len(x) * (0.002 if (x[:1] == 0).all() else 0.0005))
        return self.inner(x)


def slow_batch():
    x = torch.randn(32, 5)
    x[0] = 0
    return x


def test_a_lane_that_sleeps_gets_less_and_the_results_stay_right():
    base, x = SlowAtZero(), slow_batch()
    expected = copy.deepcopy(base.inner)
    expected(x).square().sum().backward()
    wrapper = DataParallel(base, CPU4, policy=Policy(shares="auto", dispatch="threads"))
    seen = []
    for _ in range(MOST_STEPS):
        base.zero_grad()
        out = wrapper(x)
        out.square().sum().backward()
        torch.testing.assert_close(out, expected(x))
        torch.testing.assert_close(base.inner[0].weight.grad, expected[0].weight.grad)
        seen.append(wrapper.shares)
    assert wrapper._measured_shares.is_fixed
    sizes = chunk_sizes(32, 4, wrapper.shares)
    assert 1 <= sizes[0] <= 5
    assert min(sizes[1:]) >= 8
    assert len(changes(seen)) <= MAX_TRIALS + 2
    weights = chunk_weights(32, wrapper.device_ids, wrapper.shares)
    assert (weights * 32).round().tolist() == list(sizes)


def test_trials_of_the_dispatch_do_not_count(monkeypatch):
    wrapper = DataParallel(mlp(), CPU4, policy=Policy(shares="auto"))
    ended = []
    monkeypatch.setattr(wrapper._measured_shares, "end", lambda: ended.append(True))
    was_trial = []
    for _ in range(12):
        wrapper(torch.randn(8, 5))
        was_trial.append(wrapper._dispatcher.was_trial)
    assert was_trial == [True] * 8 + [False] * 4
    assert len(ended) == 4


def test_a_forward_that_fails_leaves_the_measuring_in_order(monkeypatch):
    monkeypatch.setattr(measured, "SAMPLES", 2)
    fails = False

    def forward(self, x):
        if fails:
            raise KeyError("planned")
        return self.inner(x)

    wrapper = DataParallel(Call(forward, inner=mlp()), CPU4, policy=Policy(shares="auto", dispatch="sequence"))
    for step in range(80):
        fails = step % 5 == 4
        if fails:
            with pytest.raises(KeyError):
                wrapper(torch.ones(8, 5))
        else:
            wrapper(torch.ones(8, 5)).sum().backward()
    assert wrapper._measured_shares.is_fixed


def test_forwards_from_several_threads_are_safe():
    base, x = mlp(), torch.randn(16, 5)
    wrapper = DataParallel(base, CPU4, policy=Policy(shares="auto"))
    expected, wrong = base(x), []

    def loop():
        for _ in range(30):
            if not torch.allclose(wrapper(x), expected, atol=1e-6):
                wrong.append(True)

    threads = [threading.Thread(target=loop) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_copy_measures_anew():
    wrapper = DataParallel(mlp(), CPU4, policy=Policy(shares="auto"))
    wrapper._measured_shares.is_fixed = True
    other = copy.deepcopy(wrapper)
    assert not other._measured_shares.is_fixed
    assert other(torch.ones(8, 5)).shape == (8, 3)


def test_one_lane_measures_nothing():
    wrapper = DataParallel(mlp(), ["cpu"], policy=Policy(shares="auto"))
    wrapper(torch.ones(8, 5))
    assert wrapper._measured_shares.is_fixed
    assert wrapper.shares is None


def test_a_timing_on_the_host_has_the_time_of_each_lanes_own_call():
    timing = HostTiming([torch.device("cpu")] * 2)
    calls = timing.around([lambda: time.sleep(0.02), lambda: 5])
    assert not timing.is_whole()
    assert [call() for call in calls] == [None, 5]
    assert timing.is_whole()
    first_s, second_s = timing.lanes_s()
    assert second_s < 0.02 <= first_s
    assert timing.until_s(HostTiming([])) >= first_s + second_s
