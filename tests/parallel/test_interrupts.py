"""An interrupt at any moment of a step: the lanes end, and the next step is that of the plain module."""

from functools import partial

import pytest

from tests.parallel.interrupting import Training, assert_leaves_nothing, interrupt_at, train_with_interrupts
from tests.parallel.on_lanes import wrap
from tests.parallel.remote import take_remote_paths
from tests.sampling import sampled

SMALL = {"bucket_bytes": 200, "first_bucket_bytes": 64}
POLICIES = {
    "sequence": {},
    "threads": {"dispatch": "threads"},
    "interleaved": {"dispatch": "interleaved"},
    "auto": {"dispatch": "auto"},
    "small buckets": {**SMALL, "route": "star"},
    "chain": {**SMALL, "route": "chain", "dispatch": "threads"},
    "skip unchanged": {**SMALL, "skip_unchanged": True},
}
MOMENTS, RANDOM = 60, 100
accept = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)


@pytest.fixture(autouse=True)
def _remote(monkeypatch):
    take_remote_paths(monkeypatch)


def moments(training, how):
    """The numbers of all events of a step, or a sample of them."""
    return sampled(range(1, interrupt_at(0, partial(training.step, how)) + 1), MOMENTS)


@accept
@pytest.mark.parametrize("how", ["backward", "accumulate"])
def test_training_goes_on_after_an_interrupt_at_any_moment(policy, how):
    def train():
        training = Training(lambda base: wrap(base, **policy))
        for _ in range(10):
            training.step(how)
        for moment in moments(training, how):
            interrupt_at(moment, partial(training.step, how))
            training.assert_goes_on()
        return training

    assert_leaves_nothing(train)


@accept
def test_a_first_forward_may_be_interrupted(policy):
    def train():
        training = Training(lambda base: wrap(base, **policy))
        for moment in moments(training, "backward"):
            training = Training(lambda base: wrap(base, **policy))
            interrupt_at(moment, training.step)
            training.assert_goes_on()
        return training

    assert_leaves_nothing(train)


@pytest.mark.parametrize("dispatch", ["sequence", "threads", "interleaved"])
def test_training_goes_on_after_interrupts_at_random_moments(dispatch):
    def train():
        training = Training(lambda base: wrap(base, **SMALL, dispatch=dispatch))
        assert train_with_interrupts(training, RANDOM) > 0.9 * RANDOM
        return training

    assert_leaves_nothing(train)
