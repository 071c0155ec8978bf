"""Which way the replicas' calls go: all at once on long-lived threads, or one after the other."""

import contextvars
import sys
import warnings
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import torch
from torch.nn.utils import parametrize

from dpbench.parallel.context import ThreadState
from dpbench.parallel.crew import CrewPool
from dpbench.parallel.draws import SharedGenerators
from dpbench.parallel.policy import Dispatch, Policy
from dpbench.parallel.trial import Trial
from dpbench.parallel.turns import Onlooker, Turns

Call = Callable[[], Any]

MOST_HELPS = 2
"""The first may be due to what only a first forward does, as compiling."""
_WAITED = (
    "a replica has taken seconds while others had not begun, so these were started on threads. Replicas that wait for "
    'each other need Policy(dispatch="threads"), which knows from the start'
)
_DREW = (
    "while replicas ran on several threads, random numbers were drawn from a generator that they share, that of {}. "
    "They come in any order: no run repeats another, and a checkpoint inside a replica recomputes with other numbers, "
    'so that its gradients are wrong. Policy(dispatch="sequence") keeps the order'
)
FORWARD_AD = "torch._decomp.decompositions_for_jvp"
"""In ``sys.modules`` once anybody has used forward-mode AD, and never before (``torch/autograd/forward_ad.py``).

There is one level of it for all threads, and who leaves it, as ``torch.func.jvp`` does at its end, takes the tangents
of all: replicas that use it on several threads get wrong numbers, or crash.
"""
_LOST_TANGENTS = (
    "replicas ran on several threads, and forward-mode AD has been used, as by torch.func.jvp. They share its level: "
    "of replicas that use it tangents get lost, and numbers are wrong, without an error. "
    'Policy(dispatch="sequence") keeps the replicas apart'
)


class Dispatcher:
    """How one wrapper calls its replicas. Its threads end with it."""

    def __init__(self, policy: Policy) -> None:
        self._dispatch = policy.dispatch
        self._crews = CrewPool()
        self._onlooker = Onlooker(self._crews)
        self._helps = 0
        self._has_told_of_draws = False
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
            generators = None if self._has_told_of_draws else SharedGenerators(devices)
            results = self._run_on_threads(calls, state)
            if generators is not None:
                self._tell_of_draws(generators.moved())
            return results
        if FORWARD_AD in sys.modules:
            return self._run_in_turns(calls, devices, state)
        trial = self._trials.setdefault(
            (state.grad, is_training, len(calls)), Trial((Dispatch.SEQUENCE, Dispatch.THREADS))
        )
        return self._run_on_trial(trial, calls, devices, state)

    def _run_on_trial(
        self, trial: Trial[Dispatch], calls: Sequence[Call], devices: Sequence[torch.device], state: ThreadState
    ) -> list[Any]:
        """Whichever way is faster; but in sequence once replicas turn out to share what is drawn from, or a cache. The
        first tries tell, before there are threads.
        """
        way = trial.next_way()
        if trial.chosen is Dispatch.SEQUENCE:
            return self._run_in_turns(calls, devices, state)
        generators, cache = SharedGenerators(devices), parametrize._cache
        with trial.timed(way):
            if way is Dispatch.SEQUENCE:
                results = self._run_in_turns(calls, devices, state)
            else:
                results = self._run_on_threads(calls, state)
        if moved := generators.moved():
            trial.settle(Dispatch.SEQUENCE)
            if way is Dispatch.THREADS:
                self._tell_of_draws(moved)
        if parametrize._cache is not cache:  # a new one, since `parametrize.cached` has ended: all threads share it
            trial.settle(Dispatch.SEQUENCE)
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
            if turns.generators is not None:
                self._tell_of_draws(turns.generators.moved())
            if FORWARD_AD in sys.modules:
                warnings.warn(_LOST_TANGENTS, stacklevel=2)
        return results

    def _run_on_threads(self, calls: Sequence[Call], state: ThreadState) -> list[Any]:
        elsewhere = [partial(state.run_elsewhere, partial(contextvars.copy_context().run, call)) for call in calls[1:]]
        had_been_used = FORWARD_AD in sys.modules
        results = self._crews.run(partial(state.run_here, calls[0]), elsewhere)
        if FORWARD_AD in sys.modules and not had_been_used:
            warnings.warn(_LOST_TANGENTS, stacklevel=2)
        return results

    def _tell_of_draws(self, moved: Sequence[torch.device]) -> None:
        if moved and not self._has_told_of_draws:
            self._has_told_of_draws = True
            warnings.warn(_DREW.format(", ".join(map(str, moved))), stacklevel=2)
