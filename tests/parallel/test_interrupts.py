"""An interrupt at any moment of a step: the lanes end, and the next step is that of the plain module."""

import gc

import pytest

from tests.parallel.interrupting import SMALL, Training, assert_leaves_nothing, interrupt_at_all, interrupt_at_random
from tests.parallel.on_lanes import wrap
from tests.parallel.remote import take_remote_paths

POLICIES = {
    "sequence": {},
    "threads": {"dispatch": "threads"},
    "auto": {"dispatch": "auto"},
    "chain": {**SMALL, "route": "chain", "dispatch": "threads"},
    "skip unchanged": {**SMALL, "skip_unchanged": True},
}
MOMENTS, RANDOM = 45, 100


@pytest.fixture(autouse=True)
def _no_callbacks_of_the_garbage_collector():
    """Python drops an interrupt that comes in one of them, such as hypothesis's."""
    callbacks = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks[:] = callbacks


@pytest.fixture(autouse=True)
def _remote(monkeypatch):
    take_remote_paths(monkeypatch)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("call", ["backward", "accumulate", "first"])
def test_training_goes_on_after_an_interrupt_at_any_moment(policy, call):
    def train():
        training = Training(lambda base: wrap(base, **policy))
        for _ in range(10):  # until `auto` has chosen
            training.goes_on()
        if call == "first":
            interrupt_at_all(training, training.backward, MOMENTS, prepare=training.wrap_anew)
        else:
            interrupt_at_all(training, getattr(training, call), MOMENTS)
        return training

    assert_leaves_nothing(train)


@pytest.mark.parametrize("dispatch", ["sequence", "threads"])
def test_training_goes_on_after_interrupts_at_random_moments(dispatch):
    def train():
        training = Training(lambda base: wrap(base, **SMALL, dispatch=dispatch))
        interrupt_at_random(training, RANDOM)
        return training

    assert_leaves_nothing(train)


def test_an_accumulation_may_be_interrupted_as_it_begins():
    training = Training(wrap)

    def begin():
        with training.wrapper.accumulate():
            pass

    interrupt_at_all(training, begin, MOMENTS)
