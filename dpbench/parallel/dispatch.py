"""Call the replicas in the way that the policy names, or in the one that measures fastest."""

import contextvars
import time
import warnings
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from dpbench.parallel.lanes import wait_for_all
from dpbench.parallel.policy import Dispatch, Policy
from dpbench.parallel.sequential import SequentialRun, StallWatchdog
from dpbench.parallel.thread_state import ThreadHazards, ThreadState, has_used_forward_ad
from dpbench.parallel.threads import Call, ThreadPools

TRIES = 4
"""The first measurement of each choice does not count: it starts threads and warms caches."""
LEAST_GAIN = 0.05
"""The first choice stays unless another one takes less time by more than this part."""


def choose(least_s: Mapping[Dispatch, float]) -> Dispatch:
    usual, fastest = next(iter(least_s)), min(least_s, key=least_s.__getitem__)
    return fastest if least_s[fastest] < (1 - LEAST_GAIN) * least_s[usual] else usual


class Autotuner:
    def __init__(self, choices: Sequence[Dispatch]) -> None:
        self._times_s: dict[Dispatch, list[float]] = {choice: [] for choice in choices}
        self.chosen: Dispatch | None = None

    @property
    def trials_left(self) -> int:
        if self.chosen is not None:
            return 0
        return sum(max(0, TRIES - len(times)) for times in self._times_s.values())

    def next_choice(self) -> Dispatch:
        if self.chosen is not None:
            return self.chosen
        return min(self._times_s, key=lambda choice: len(self._times_s[choice]))

    @contextmanager
    def timed(self, choice: Dispatch) -> Iterator[None]:
        start_s = time.perf_counter()
        yield
        self.add(choice, time.perf_counter() - start_s)

    def add(self, choice: Dispatch, time_s: float) -> None:
        if self.chosen is None:
            self._times_s[choice].append(time_s)
            if all(len(times) >= TRIES for times in self._times_s.values()):
                # The shortest of a few times is the one with the least disturbance.
                self.chosen = choose({choice: min(times[1:]) for choice, times in self._times_s.items()})


HAZARD_CHECKS = 100
"""Forwards on threads that the user asked for, which are checked for use of shared state."""
_STALLED = (
    "a replica waited, or ran for seconds, while others had not begun or waited for their turn, so all were let run at "
    'once. Replicas that wait for each other need Policy(dispatch="threads"), which starts all of them at once'
)
_HAZARD = (
    "replicas ran on several threads and used state that all threads share: {}. "
    'Policy(dispatch="sequence") runs them one after the other'
)


class Dispatcher:
    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._dispatch = policy.dispatch
        self._pools = ThreadPools()
        self._watchdog = StallWatchdog()
        self._has_warned = False
        self._checks_left = HAZARD_CHECKS
        self._autotuners: dict[Hashable, Autotuner] = {}
        self.has_run = False
        """Whether a forward of the wrapper has ended."""
        self._lanes: int | None = None
        """The number of replicas in the last run that could choose."""

    def run(
        self, calls: Sequence[Call], devices: Sequence[torch.device], state: ThreadState, is_training: Any
    ) -> list[Any]:
        """The calls' results, in order; the first call runs in the caller's thread.

        Replicas in training are measured apart from replicas in evaluation.
        """
        self._lanes = None
        if len(calls) == 1 or self._dispatch is Dispatch.SEQUENCE or state.is_watched:
            return [state.run_here(call) for call in calls]
        if self._dispatch is Dispatch.THREADS:
            hazards = None if self._has_warned or self._checks_left <= 0 else ThreadHazards(devices)
            self._checks_left -= 1
            results = self._run_on_threads(calls, state)
            if hazards is not None:
                self._warn(hazards.uses())
            return results
        self._lanes = len(calls)
        return self._run_autotuned(self._autotuner(state.grad, is_training), calls, devices, state)

    def _autotuner(self, grad: bool, is_training: Any) -> Autotuner:
        key = grad, is_training, self._lanes
        return self._autotuners.setdefault(key, Autotuner(self._policy.ways))

    def trials_left(self, grad: bool, is_training: Any) -> int:
        if self._lanes is None or self._dispatch is not Dispatch.AUTO:
            return 0
        return self._autotuner(grad, is_training).trials_left

    def _run_autotuned(
        self, autotuner: Autotuner, calls: Sequence[Call], devices: Sequence[torch.device], state: ThreadState
    ) -> list[Any]:
        if has_used_forward_ad():
            autotuner.chosen = Dispatch.SEQUENCE
        if autotuner.chosen is Dispatch.SEQUENCE:
            return self._run_watched(SequentialRun(calls, devices, state, self._pools))
        choice = autotuner.next_choice()
        hazards = ThreadHazards(devices)
        is_trial = autotuner.chosen is None
        if is_trial:
            wait_for_all(devices)  # the time of a trial is that of the devices, not that of issuing their work
        with autotuner.timed(choice):
            if choice is Dispatch.THREADS:
                results = self._run_on_threads(calls, state)
            else:
                results = self._run_watched(SequentialRun(calls, devices, state, self._pools))
            if is_trial:
                wait_for_all(devices)
        if uses := hazards.uses():
            autotuner.chosen = Dispatch.SEQUENCE
            if choice is Dispatch.THREADS:
                hazards.restore_settings()  # in sequence the same replicas left the settings unchanged
                self._warn(uses)
        return results

    def _run_watched(self, run: SequentialRun) -> list[Any]:
        results = self._watchdog.run(run)
        if run.hazards is not None:
            warnings.warn(_STALLED, stacklevel=2)
            self._dispatch = Dispatch.THREADS
            self._warn(run.hazards.uses())
        return results

    def _run_on_threads(self, calls: Sequence[Call], state: ThreadState) -> list[Any]:
        elsewhere = [partial(state.run_elsewhere, partial(contextvars.copy_context().run, call)) for call in calls[1:]]
        return self._pools.run(partial(state.run_here, calls[0]), elsewhere)

    def _warn(self, uses: Sequence[str]) -> None:
        if uses and not self._has_warned:
            self._has_warned = True
            warnings.warn(_HAZARD.format("; ".join(uses)), stacklevel=2)
