"""Which way the replicas' calls go: all at once on long-lived threads, or one after the other."""

import contextvars
import warnings
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import torch

from dpbench.parallel.autotune import Autotuner
from dpbench.parallel.context import ThreadState
from dpbench.parallel.policy import Dispatch, Policy
from dpbench.parallel.sequential import SequentialRun, StallWatchdog
from dpbench.parallel.thread_hazards import ThreadHazards, has_used_forward_ad
from dpbench.parallel.thread_pool import ThreadPools

Call = Callable[[], Any]

MAX_STALLS = 2
"""The first may be due to what only a first forward does, as compiling."""
_WAITED = (
    "a replica has taken seconds while others had not begun, so these were started on threads. Replicas that wait for "
    'each other need Policy(dispatch="threads"), which knows from the start'
)
_SHARED = (
    "replicas ran on several threads and used what all threads share: {}. "
    'Policy(dispatch="sequence") runs them one after the other'
)


class Dispatcher:
    """How one wrapper calls its replicas. Its threads end with it."""

    def __init__(self, policy: Policy) -> None:
        self._dispatch = policy.dispatch
        self._pools = ThreadPools()
        self._watchdog = StallWatchdog(self._pools)
        self._stalls = 0
        self._has_warned = False
        self._autotuners: dict[Hashable, Autotuner[Dispatch]] = {}

    def run(
        self, calls: Sequence[Call], devices: Sequence[torch.device], state: ThreadState, is_training: Any
    ) -> list[Any]:
        """The calls' results, in order. The first call runs in the caller's thread.

        `devices` are those of the lanes; replicas that train are measured apart from those that do not.
        """
        if len(calls) == 1 or self._dispatch is Dispatch.SEQUENCE or state.is_watched:
            return [state.run_here(call) for call in calls]
        if self._dispatch is Dispatch.THREADS:
            shared = None if self._has_warned else ThreadHazards(devices)
            results = self._run_on_threads(calls, state)
            if shared is not None:
                self._warn(shared.uses())
            return results
        trial = self._autotuners.setdefault(
            (state.grad, is_training, len(calls)), Autotuner((Dispatch.SEQUENCE, Dispatch.THREADS))
        )
        return self._run_autotuned(trial, calls, devices, state)

    def _run_autotuned(
        self, trial: Autotuner[Dispatch], calls: Sequence[Call], devices: Sequence[torch.device], state: ThreadState
    ) -> list[Any]:
        """Whichever way is faster; but in sequence once they turn out to use what they share. The first try tells,
        before there are threads.
        """
        if has_used_forward_ad():
            trial.settle(Dispatch.SEQUENCE)
        if trial.chosen is Dispatch.SEQUENCE:
            return self._run_sequentially(calls, devices, state)
        way = trial.next_choice()
        shared = ThreadHazards(devices)
        with trial.timed(way):
            if way is Dispatch.SEQUENCE:
                results = self._run_sequentially(calls, devices, state)
            else:
                results = self._run_on_threads(calls, state)
        if uses := shared.uses():
            trial.settle(Dispatch.SEQUENCE)
            if way is Dispatch.THREADS:
                shared.put_back()  # in sequence they left them alone
                self._warn(uses)
        return results

    def _run_sequentially(
        self, calls: Sequence[Call], devices: Sequence[torch.device], state: ThreadState
    ) -> list[Any]:
        """In sequence, unless they turn out to wait for each other."""
        turns = SequentialRun(calls, devices, state)
        results = self._watchdog.run(turns)
        if turns.helper is not None:
            warnings.warn(_WAITED, stacklevel=2)
            self._stalls += 1
            if self._stalls >= MAX_STALLS:
                self._dispatch = Dispatch.THREADS
            if turns.shared is not None:
                self._warn(turns.shared.uses())
        return results

    def _run_on_threads(self, calls: Sequence[Call], state: ThreadState) -> list[Any]:
        elsewhere = [partial(state.run_elsewhere, partial(contextvars.copy_context().run, call)) for call in calls[1:]]
        return self._pools.run(partial(state.run_here, calls[0]), elsewhere)

    def _warn(self, uses: Sequence[str]) -> None:
        if uses and not self._has_warned:
            self._has_warned = True
            warnings.warn(_SHARED.format("; ".join(uses)), stacklevel=2)
