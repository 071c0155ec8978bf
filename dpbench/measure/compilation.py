"""What torch compiles in this process: how often, for how long, and why.

torch reports it in torch/_dynamo/callback.py and utils.py, which are private; torch 2.11 to 2.14 have them. Importing
Dynamo takes over a second, so that functions do it, and a gate's coordinator does not.
"""

import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch._dynamo.exc import TorchDynamoException
    from torch._dynamo.utils import CompilationMetrics

_MOST_NAMED = 3


class NotCompiledError(Exception):
    """torch compiled nothing of a variant that asks for it."""


@dataclass
class Compilations:
    """`seconds` are wall-clock time in which some thread compiled; `count` of these spans have ended."""

    seconds: float = 0.0
    count: int = 0
    _begun_s: float = 0.0

    def begin(self, *_: object) -> None:
        self._begun_s = time.perf_counter()

    def end(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._begun_s
        self.count += 1


@cache
def compilations() -> Compilations:
    """Those since the first call in this process."""
    from torch._dynamo.callback import callback_handler

    seen = Compilations()
    callback_handler.register_start_callback(seen.begin)
    callback_handler.register_end_callback(seen.end)
    return seen


def has_graphs() -> bool:
    """Whether a backend has compiled a graph in this process."""
    from torch._dynamo.utils import counters

    return counters["stats"]["unique_graphs"] > 0


def forget_reasons() -> None:
    from torch._dynamo.utils import clear_compilation_metrics

    clear_compilation_metrics()


def reasons() -> str:
    """What was compiled since `forget_reasons`, such as ``forward (model.py:12): tensor 'x' size mismatch ...``."""
    from torch._dynamo.utils import get_compilation_metrics

    every = [_named(one) for one in get_compilation_metrics() if one.co_name]
    left_out = [f"{len(every) - _MOST_NAMED} more"] if len(every) > _MOST_NAMED else []
    return "; ".join([*every[:_MOST_NAMED], *left_out]) or "a backward, or a recording of CUDA graphs"


def _named(one: "CompilationMetrics") -> str:
    code = "the model" if one.co_name == "inner" else f"{one.co_name} ({Path(one.co_filename or '').name})"
    return f"{code}: {one.recompile_reason or 'its first call'}"


def failure_line(error: "TorchDynamoException") -> str:
    """The line that names the cause, such as a missing C++ compiler."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"torch.compile: {next((line for line in lines if not line.endswith('raised:')), type(error).__name__)}"
