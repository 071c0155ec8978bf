"""Exact counters of one training step, by phase, and the lines of code they come from: gate/causes.py draws one.

The details of a counter add up to it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from pydantic import Field, model_validator

from dpbench.cases.case import Case
from dpbench.records.record import Environment, Outcome
from dpbench.text.validated import Frozen

ABSENT = "absent"
"""The end of a counter that is 1 if a use raises, else 0."""


class Phase(StrEnum):
    """In order; FORWARD begins with zero_grad and ends with the loss."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMISER = "optimiser"


class Traffic(Frozen):
    count: int = Field(ge=0)
    size_bytes: int = Field(ge=0)


class PhaseCounts(Frozen):
    """All devices together; None is not counted on these devices.

    On simulated devices:

    - `operators` are dispatched to the devices; views and copies are among them. `kernels` are those that compute.
    - `flops` are by torch's formulas for matrix products, convolutions and attention; other operators count 0.
    - `copies` are by link, such as ``host->sim:0`` or ``sim:0->sim:1``.
    - `host_calls` start no work on a device, or block the host: `HostCallName` in records/recording.py.
    - `allocations` are of device memory. `peak_bytes` is the most that was allocated on each device.

    On CPU lanes: `python_calls`, and if asked for, `python_lines`: see measure/python_calls.py.

    If asked for: `host_operators` are dispatched to tensors of the host, views excepted, and `host_bytes` are what they
    write. On CPU lanes `threads_started`, `waits`, `threading_calls` into that module, and `thread_python_calls` of
    threads that exist already: see measure/counted/host_work.py.

    Of borrowed benchmarks without torch: `python_peak_bytes`, the most memory that a call's own objects take.

    In real processes: `operators` and `flops` summed over the ranks, and `collectives` by kind, each once, with the
    bytes of one rank.
    """

    operators: int | None = None
    kernels: int | None = None
    flops: int | None = None
    copies: dict[str, Traffic] | None = None
    collectives: dict[str, Traffic] | None = None
    allocations: int | None = None
    host_calls: dict[str, int] | None = None
    peak_bytes: dict[str, int] | None = None
    python_calls: int | None = None
    python_lines: int | None = None
    python_peak_bytes: int | None = None
    host_operators: int | None = None
    host_bytes: int | None = None
    turns: int | None = None
    threads_started: int | None = None
    threading_calls: int | None = None
    thread_python_calls: int | None = None
    waits: int | None = None


class Dependencies(Frozen):
    """How lanes depend on each other, and how early the host issues the sums of gradients.

    `reduced_bytes` are sent between devices to sum the lanes' gradients. "Half" is when the first half of each lane's
    backward operators is done:

    - For `ready_at_half_bytes` of them, the gradients of every lane are ready at half.
    - `startable_at_half_bytes` of them can be sent at half: no stream or wait delays them behind the second half.
    - `issued_at_half_bytes` of them are issued by the host before it begins the second half of the last lane.

    `operators_before_issue` are issued between a reduction's last gradient and its first copy, summed over reductions.
    `issue_swaps` are pairs of reductions issued in another order than that of their gradients.

    If asked for: `copies_in_a_row` are the most copies of which each must wait for the one before. `passed_on_bytes`
    are the largest copy between two lanes that are not the base's, for all of which the next hop waits.
    `calls_before_last_lane` are the host's calls before the last lane begins. `turns` are how often the forward goes on
    in another lane's thread.

    `broadcast_bytes` carry parameters and buffers to the lane that gets most. `before_first_layer_bytes` of them must
    arrive before that lane's first layer can start.
    """

    reduced_bytes: int
    ready_at_half_bytes: int
    startable_at_half_bytes: int
    issued_at_half_bytes: int
    operators_before_issue: int
    issue_swaps: int
    copies_in_a_row: int | None = None
    passed_on_bytes: int | None = None
    calls_before_last_lane: int | None = None
    turns: int | None = None
    broadcast_bytes: int
    before_first_layer_bytes: int


class Kept(Frozen):
    """What each step leaves in host memory, on CPU lanes.

    `python_blocks` are of Python's small objects, in multiples of 4. `malloc_bytes` are of all others, such as tensors,
    in multiples of 64.
    """

    python_blocks: int
    malloc_bytes: int


class MoreSteps(Frozen):
    """What many further steps do together, on CPU lanes.

    `seldom_calls` are Python calls beyond those of the first step in each. `collections` are garbage collections that
    the code asks for. `later_lines` are Python lines of the last steps beyond those of as many first ones.
    """

    seldom_calls: int
    collections: int
    later_lines: int


class Counts(Frozen):
    """Mode `infer` has the forward phase alone.

    If asked for: `kept` and `more_steps`. `uses` are those of a file: `measure/counted/uses.py`. `value` is what a
    borrowed benchmark tracks. `nccl_links` has the bytes by link if NCCL's rings carried the stock wrapper's broadcasts
    and sums; None for other variants.
    """

    phases: dict[Phase, PhaseCounts]
    dependencies: Dependencies | None = None
    kept: Kept | None = None
    more_steps: MoreSteps | None = None
    uses: dict[str, int] | None = None
    nccl_links: dict[str, int] | None = None
    value: float | None = None
    unit: str = ""

    def by_name(self) -> dict[str, int]:
        tree = self.model_dump(mode="json", exclude={"unit"})
        value = {f"value ({self.unit})": tree.pop("value")}
        return dict(_leaves("", {**tree.pop("phases"), **tree, **value}))


def _leaves(path: str, value: Any) -> list[tuple[str, int]]:
    if isinstance(value, Mapping):
        return [leaf for key, inner in value.items() for leaf in _leaves(f"{path}.{key}" if path else key, inner)]
    return [] if value is None else [(path, value)]


MOST_DETAILS = 20_000
LONGEST_TEXT = 120
"""Characters of a source line or a name."""


class Place(Frozen):
    """`function` is a qualified name, `text` the line without indentation.

    `file` is relative to the commit's folder, or to one from which Python imports.
    """

    file: str
    line: int
    function: str
    text: str = ""


class Detail(Frozen):
    """The part of `counter`, a full name, that one line causes.

    `what` is an operator, the size of a copy, a call of the host, or a Python function, which is `defined` at a file
    and line. `place` is the line that did it; for a function the line of the call. If the stack passes through a
    function that the commit changed, the innermost such function has the place, and `is_changed` is set.
    """

    counter: str
    what: str
    place: Place
    value: int
    defined: Place | None = None
    is_changed: bool = False


class CountRecord(Frozen):
    """SKIPPED is a case that cannot be counted. `why_numbers` says why numbers were computed for a job that asked for
    shapes only. `imported` are those of the job's `changed` files that the case imported.
    """

    case: Case
    outcome: Outcome
    reason: str | None = None
    counts: Counts | None = None
    environment: Environment | None = None
    why_numbers: str | None = None
    details: tuple[Detail, ...] = ()
    imported: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _only_ok_has_numbers(self) -> Self:
        is_ok = self.outcome is Outcome.OK
        if (self.counts is not None) != is_ok or (self.environment is not None) != is_ok:
            raise ValueError("outcome ok, and no other, has counts and environment")
        if self.outcome is not Outcome.OK and self.reason is None:
            raise ValueError(f"outcome {self.outcome} needs a reason")
        return self

    @property
    def why(self) -> str:
        """The outcome, and the first and last line of the reason."""
        lines = (self.reason or "").splitlines()
        return ": ".join([self.outcome.replace("_", " "), *dict.fromkeys([*lines[:1], *lines[-1:]])])


@dataclass(frozen=True)
class Change:
    name: str
    old: int | None
    new: int | None

    def __str__(self) -> str:
        if self.old is None:
            return f"{self.name}: {self.new}, not expected"
        if self.new is None:
            return f"{self.name}: {self.old} expected, not counted"
        return f"{self.name}: {self.old} -> {self.new}"


def diff(old: Mapping[str, int], new: Mapping[str, int]) -> tuple[Change, ...]:
    """Sorted by name."""
    return tuple(
        Change(name, old.get(name), new.get(name))
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    )
