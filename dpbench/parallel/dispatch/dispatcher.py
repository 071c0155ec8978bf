"""Call the replicas in the way that the policy names, or in the one that measures fastest."""

import contextvars
import warnings
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import torch

from dpbench.parallel.dispatch.autotune import Autotuner
from dpbench.parallel.dispatch.context import ThreadState
from dpbench.parallel.dispatch.interleaved import InterleavedRun
from dpbench.parallel.dispatch.sequential import SequentialRun
from dpbench.parallel.dispatch.thread_hazards import ThreadHazards, has_used_forward_ad
from dpbench.parallel.dispatch.thread_pool import ThreadPools
from dpbench.parallel.dispatch.watchdog import StallWatchdog, WatchedRun
from dpbench.parallel.lanes import wait_for_all
from dpbench.parallel.policy import Dispatch, Policy

Call = Callable[[], Any]

HAZARD_CHECKS = 100
"""Forwards on threads, by the user's choice, that are checked for use of shared state."""
_STALLED = (
    "a replica waited, or ran for seconds, while others had not begun or waited for their turn, so all were let run at "
    'once. Replicas that wait for each other need Policy(dispatch="threads"), which starts all of them at once'
)
_HAZARD = (
    "replicas ran on several threads and used state that all threads share: {}. "
    'Policy(dispatch="sequence") runs them one after the other'
)


class Dispatcher:
    """Calls the replicas of one wrapper. Its threads end with it."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._dispatch = policy.dispatch
        self._pools = ThreadPools()
        self._watchdog = StallWatchdog()
        self._has_warned = False
        self._checks_left = HAZARD_CHECKS
        self._autotuners: dict[Hashable, Autotuner[Dispatch]] = {}
        self.has_run = False
        """Whether a forward of the wrapper has ended. The first one may choose a route."""
        self._lanes: int | None = None
        """The number of replicas in the last run that could choose; None before it, and after one that could not."""

    def run(
        self, calls: Sequence[Call], devices: Sequence[torch.device], state: ThreadState, is_training: Any
    ) -> list[Any]:
        """The calls' results, in order. The first call runs in the caller's thread.

        `devices` are those of the lanes. Replicas in training are measured apart from replicas in evaluation.
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
        if self._dispatch is Dispatch.INTERLEAVED:
            return self._run_watched(InterleavedRun(calls, devices, state, self._pools))
        self._lanes = len(calls)
        return self._run_autotuned(self._autotuner(state.grad, is_training, devices), calls, devices, state)

    def _autotuner(self, grad: bool, is_training: Any, devices: Sequence[torch.device]) -> Autotuner[Dispatch]:
        key = grad, is_training, self._lanes
        return self._autotuners.setdefault(key, Autotuner(self._policy.ways(devices)))

    def trials_left(self, grad: bool, is_training: Any, devices: Sequence[torch.device]) -> int:
        """The number of runs in this mode that are still trials, with as many replicas as the last run had."""
        if self._lanes is None or self._dispatch is not Dispatch.AUTO:
            return 0
        return self._autotuner(grad, is_training, devices).trials_left

    def _run_autotuned(
        self, autotuner: Autotuner[Dispatch], calls: Sequence[Call], devices: Sequence[torch.device], state: ThreadState
    ) -> list[Any]:
        """Run in the way that measures fastest; after a use of shared state, in sequence.

        The first try is in sequence, so the use is usually seen before there are threads.
        """
        if has_used_forward_ad():
            autotuner.fix(Dispatch.SEQUENCE)
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
                run = SequentialRun if choice is Dispatch.SEQUENCE else InterleavedRun
                results = self._run_watched(run(calls, devices, state, self._pools))
            if is_trial:
                wait_for_all(devices)
        if uses := hazards.uses():
            autotuner.fix(Dispatch.SEQUENCE)
            if choice is Dispatch.THREADS:
                hazards.restore_settings()  # in sequence the same replicas left the settings unchanged
                self._warn(uses)
        return results

    def _run_watched(self, run: WatchedRun) -> list[Any]:
        """Run one replica at a time. If the run stalls, the watchdog starts the others on threads, for good."""
        results = self._watchdog.run(run)
        if run.was_rescued:
            warnings.warn(_STALLED, stacklevel=2)
            self._dispatch = Dispatch.THREADS
            if run.hazards is not None:
                self._warn(run.hazards.uses())
        return results

    def _run_on_threads(self, calls: Sequence[Call], state: ThreadState) -> list[Any]:
        elsewhere = [partial(state.run_elsewhere, partial(contextvars.copy_context().run, call)) for call in calls[1:]]
        return self._pools.run(partial(state.run_here, calls[0]), elsewhere)

    def _warn(self, uses: Sequence[str]) -> None:
        """Warn of used shared state, once per wrapper."""
        if uses and not self._has_warned:
            self._has_warned = True
            warnings.warn(_HAZARD.format("; ".join(uses)), stacklevel=2)
