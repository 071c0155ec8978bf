"""What the compiler did in a wrapper's forwards.

Compiled replicas run in sequence, on the calling thread. Compiling is not thread-safe: torch's tracing sets flags of
the whole process. Nor is the lookup of compiled code: lanes on threads compiled anew, needlessly, in 2 of 3,000
forwards.
"""

import gc
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any, TypeVar

import torch

from dpbench.parallel.compiled import is_any_compiled
from dpbench.parallel.module_tree import ModuleTree

T = TypeVar("T")

_DYNAMO = "torch._dynamo"


class CompileReport:
    def __init__(self, devices: Iterable[torch.device]) -> None:
        self.is_settled = True
        """Whether the last forward compiled nothing."""
        self._device_count = len(set(devices))
        self._is_compiled = False
        self._forwards: Counter[str] = Counter()
        self._causes: Counter[str] = Counter()

    def watch(self, forward: Callable[[], T], tree: ModuleTree) -> T:
        """Return what `forward` of the tree's replicas returns."""
        before = _Progress()
        try:
            with self._raised_limit():
                return forward()
        finally:
            self._note(_Progress(), before, tree)

    def _raised_limit(self) -> Any:
        """Guards name the device, so each of them needs compiled code of its own."""
        if self._device_count == 1:
            return nullcontext()
        config = sys.modules[_DYNAMO].config
        return config.patch(recompile_limit=config.recompile_limit * self._device_count)

    def _note(self, now: "_Progress", before: "_Progress", tree: ModuleTree) -> None:
        graphs, failed = now.graphs - before.graphs, now.failed - before.failed
        self.is_settled = not graphs
        if graphs:
            gc.collect()  # dynamo's records of what it has traced are in cycles, and keep the replicas from being idle
        self._is_compiled = self._is_compiled or graphs > 0 or is_any_compiled(tree.modules)
        what = "compiled" if self._is_compiled else "eager"
        self._forwards[f"{what}, and {graphs} new graphs" if graphs else what] += 1
        causes = Counter({f"a graph break: {text}": count for text, count in (now.breaks - before.breaks).items()})
        if failed > 0:
            causes[f"code that stays eager: {_last_failure()}"] += failed
        if not self._is_compiled and not self._causes:
            causes["dynamo has compiled nothing of the model"] += 1
        if causes and not self._causes:
            warnings.warn(f"the replicas are not compiled, or in part: {next(iter(causes))}", stacklevel=2)
        self._causes += causes

    def lines(self) -> list[str]:
        return [
            *[f"{count} forwards: {text}" for text, count in self._forwards.items()],
            *[f"{count} times {text}" for text, count in self._causes.items()],
        ]


class _Progress:
    """Dynamo's counters of this process."""

    def __init__(self) -> None:
        counters = sys.modules[_DYNAMO].utils.counters
        self.graphs: int = counters["stats"]["unique_graphs"]
        self.failed: int = counters["frames"]["total"] - counters["frames"]["ok"]
        self.breaks = Counter({_first_line(text): count for text, count in counters["graph_break"].items()})


def _first_line(text: str) -> str:
    return text.split("\n", 1)[0]


def _last_failure() -> str:
    """The reason of the last frame that failed, from dynamo's records of the last compilations."""
    reasons = [metrics.fail_reason for metrics in sys.modules[_DYNAMO].utils.get_compilation_metrics()]
    return _first_line(next(filter(None, reversed(reasons)), "the compiler gives no reason"))
