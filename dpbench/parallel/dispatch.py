"""Which way the replicas' calls go: all at once on long-lived threads, or one after the other."""

import contextvars
import warnings
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import torch

from dpbench.parallel.context import ThreadState
from dpbench.parallel.crew import CrewPool
from dpbench.parallel.policy import Dispatch, Policy
from dpbench.parallel.shared import Shared, has_used_forward_ad
from dpbench.parallel.trial import Trial
from dpbench.parallel.turns import Onlooker, Turns

Call = Callable[[], Any]

MOST_HELPS = 2
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
        self._crews = CrewPool()
        self._onlooker = Onlooker(self._crews)
        self._helps = 0
        self._has_told = False
        self._trials: dict[Hashable, Trial[Dispatch]] = {}

    def run(
        self, calls: Sequence[Call], devices: Sequence[torch.device], state: ThreadState, is_training: Any
    ) -> list[Any]:
        """The calls' results, in order. The first call runs in the caller's thread.

        `devices` are those of the lanes; replicas that train are measured apart from those that do not.
        """
        if len(calls) == 1 or self._dispatch is Dispatch.SEQUENCE or state.is_watched:
            return [state.run_here(call) for call in calls]
        if self._dispatch is Dispatch.THREADS:
            shared = None if self._has_told else Shared(devices)
            results = self._run_on_threads(calls, state)
            if shared is not None:
                self._tell(shared.uses())
            return results
        trial = self._trials.setdefault(
            (state.grad, is_training, len(calls)), Trial((Dispatch.SEQUENCE, Dispatch.THREADS))
        )
        return self._run_on_trial(trial, calls, devices, state)

    def _run_on_trial(
        self, trial: Trial[Dispatch], calls: Sequence[Call], devices: Sequence[torch.device], state: ThreadState
    ) -> list[Any]:
        """Whichever way is faster; but in sequence once they turn out to use what they share. The first try tells,
        before there are threads.
        """
        if has_used_forward_ad():
            trial.settle(Dispatch.SEQUENCE)
        if trial.chosen is Dispatch.SEQUENCE:
            return self._run_in_turns(calls, devices, state)
        way = trial.next_way()
        shared = Shared(devices)
        with trial.timed(way):
            if way is Dispatch.SEQUENCE:
                results = self._run_in_turns(calls, devices, state)
            else:
                results = self._run_on_threads(calls, state)
        if uses := shared.uses():
            trial.settle(Dispatch.SEQUENCE)
            if way is Dispatch.THREADS:
                shared.put_back()  # in sequence they left them alone
                self._tell(uses)
        return results

    def _run_in_turns(self, calls: Sequence[Call], devices: Sequence[torch.device], state: ThreadState) -> list[Any]:
        """In sequence, unless they turn out to wait for each other."""
        turns = Turns(calls, devices, state)
        results = self._onlooker.run(turns)
        if turns.helper is not None:
            warnings.warn(_WAITED, stacklevel=2)
            self._helps += 1
            if self._helps >= MOST_HELPS:
                self._dispatch = Dispatch.THREADS
            if turns.shared is not None:
                self._tell(turns.shared.uses())
        return results

    def _run_on_threads(self, calls: Sequence[Call], state: ThreadState) -> list[Any]:
        elsewhere = [partial(state.run_elsewhere, partial(contextvars.copy_context().run, call)) for call in calls[1:]]
        return self._crews.run(partial(state.run_here, calls[0]), elsewhere)

    def _tell(self, uses: Sequence[str]) -> None:
        if uses and not self._has_told:
            self._has_told = True
            warnings.warn(_SHARED.format("; ".join(uses)), stacklevel=2)
