"""The counters of tier 0: when more of one is worse, no change, or tolerated. Pure.

Counts have no noise, so one operator, copy, byte, allocation or host wait more is a regression. `KINDS` has the
exceptions. One call more costs a host less than a step time shows, and any refactoring may add one. So a project
tolerates some (`Tolerances`), and times outvote more of them. What a device or a link does is exact.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Literal

from dpbench.gate.settings import Tolerances

GROWTH = ".growth"
"""The end of the name of a growth: what a counter grows by if the model or the number of lanes doubles."""
GROWTH_SLACK = 0.05
"""The share by which a growth may be larger than base's."""
_REDUCED = "dependencies.reduced_bytes"


class Worse(StrEnum):
    MORE = "more"
    LESS_OF_REDUCED = "a smaller share of the reduced bytes"
    MORE_IN_ALL = "more, unless it moved here from another part of the step"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class CounterKind:
    """A change of at most `slack`, a share of base's count or a number, is no change.

    `tolerance` says which growth of the settings is tolerated, and that times outvote a larger one. `grows` is whether
    its growth is compared when something doubles.
    """

    names: str
    worse: Worse = Worse.MORE
    slack: tuple[float, float] | None = None
    tolerance: Literal["host", "memory"] | None = None
    is_memory: bool = False
    grows: bool = True


_HOST = "(python_calls|host_operators)"
_ONCE = r"uses\.once_\w+"
KINDS = (
    CounterKind(r"\w+\.python_calls", tolerance="host"),
    # A line costs nothing by itself: a loop has more, other code for the same work has fewer.
    CounterKind(r"\w+\.python_lines", slack=(0.05, 500), tolerance="host"),
    CounterKind(r"\w+\.(thread_python_calls|host_operators|threading_calls|waits)", tolerance="host"),
    CounterKind(r"forward\.turns", Worse.UNKNOWN),  # `dependencies.turns` decides, where their order is known
    # A few names more cost a call of a borrowed benchmark as much.
    CounterKind(r"\w+\.python_peak_bytes", slack=(0.05, 1024), tolerance="memory", is_memory=True),
    CounterKind(r"\w+\.peak_bytes\..*", tolerance="memory", is_memory=True),
    CounterKind(r"dependencies\.(ready|startable|issued)_at_half_bytes", Worse.LESS_OF_REDUCED),
    # A piece that is a little larger costs no more than the next hop's copy of it.
    CounterKind(r"dependencies\.passed_on_bytes", slack=(0.01, 0)),
    CounterKind(r"kept\..*", is_memory=True, grows=False),
    # What a user does once in a run: an attribute more of the wrapper adds calls to a copy.
    CounterKind(rf"{_ONCE}\.{_HOST}", slack=(0.05, 0), tolerance="host", grows=False),
    CounterKind(rf"{_ONCE}\..*", slack=(0.05, 0), grows=False),
    CounterKind(rf"uses\.\w+\.{_HOST}", tolerance="host", grows=False),
    CounterKind(r"uses\.\w+\.python_lines", slack=(0.05, 500), tolerance="host", grows=False),
    CounterKind(r"(uses|more_steps)\..*", grows=False),
    # Of borrowed benchmarks, and of scripts. What is sent before the first forward is sent once.
    CounterKind(r"value \(bytes\)", is_memory=True),
    CounterKind(r"setup\..*", Worse.UNKNOWN),
    CounterKind(r"(step|seldom)\..*", Worse.MORE_IN_ALL),
)
"""The first whose names match holds. Other counters have the defaults."""


@cache
def kind_of(counter: str) -> CounterKind:
    """The kind of a counter, or of that whose growth it is."""
    name = counter.removesuffix(GROWTH)
    return next((kind for kind in KINDS if re.fullmatch(kind.names, name)), CounterKind(".*"))


def is_worse(counter: str, olds: Mapping[str, int], news: Mapping[str, int]) -> bool | None:
    """None if that is unknown. A missing counter counts as 0."""
    worse, old, new = kind_of(counter).worse, olds.get(counter, 0), news.get(counter, 0)
    if worse is Worse.UNKNOWN:
        return None
    if worse is Worse.LESS_OF_REDUCED:
        return new * olds.get(_REDUCED, 0) < old * news.get(_REDUCED, 0)
    if worse is Worse.MORE_IN_ALL:
        period, *_, what, unit = counter.split(".")
        alike = [name for name in olds.keys() | news.keys() if re.fullmatch(rf"{period}\..*\.{what}\.{unit}", name)]
        more_in_all = sum(news.get(name, 0) - olds.get(name, 0) for name in alike)
        return None if (new - old) * more_in_all <= 0 else new > old
    return new > old


def is_notable(counter: str, old: float, new: float) -> bool:
    """Whether a difference is more than what other code of the same cost changes."""
    slack = kind_of(counter).slack
    return slack is None or abs(new - old) > max(slack[0] * old, slack[1])


def is_tolerated(counter: str, base: float, more: float, tolerances: Tolerances) -> bool:
    match kind_of(counter).tolerance:
        case "host":
            return tolerances.tolerated > 0 and more <= max(tolerances.tolerated * base, tolerances.calls)
        case "memory":
            return more <= tolerances.memory * base
        case None:
            return False
