"""A profiled step as a timeline, from the Chrome trace that torch.profiler exports.

A thread of the host shows its outermost operators. On CPU lanes they compute, except in the parts of the wrapper that
move data: scatter, replicate, gather, and the sums of gradients. With CUDA kernels the threads only issue work, and
each stream has a row of kernels and copies.

The profiler records no waits. So what a span waited for is inferred: a kernel waited for its launch, or for the one
before it in its stream; an operator for the one before it in its thread. After a gap it waited for what ended last.
"""

from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from dpbench.records.count_record import Phase
from dpbench.trace.timeline import HOST, Doing, Moved, Span, Timeline, TimelineRow, VariantTrace

STEP_MARK = "step"
"""The mark waits for the devices at its end."""
MARK = "dpbench: "
"""The beginning of the names of our own marks in the profiler's file."""
_MARK = "user_annotation"
_OPERATOR = "cpu_op"
_COPY = "gpu_memcpy"
_LAUNCHES = ("cuda_runtime", "cuda_driver")
_ON_DEVICE = ("kernel", "gpu_memset", _COPY)
_GAP_S = 20e-6
"""A shorter gap between two operators of a thread is the interpreter's own."""
_NODE = "autograd::engine::evaluate_function: "
_PARTS = {"scatter": Moved.INPUTS, "replicate": Moved.PARAMETERS, "gather": Moved.OUTPUTS}
_NCCL = {"Broadcast": Moved.PARAMETERS, "Reduce": Moved.GRADIENTS}
_INFERRED = "what each operator waited for is inferred from the times: a profile has no waits"
Event = Mapping[str, Any]
"""A complete event of a Chrome trace. Its `ts` and `dur` are in microseconds."""


def recorded_trace(
    variant: str, profile: Mapping[str, Any], other_s: Sequence[float], reduction_nodes: Sequence[str] = ()
) -> VariantTrace:
    """The trace of the shortest marked step of a profile; `other_s` are the seconds of steps without a profiler.

    `reduction_nodes` are the names of the autograd nodes that sum the lanes' gradients. Raise ValueError if no step is
    marked.
    """
    step, events = shortest_step(profile)
    step_s = median(other_s)
    times = f"{step['dur'] * 1e-6 / step_s:.1f}"
    beside = f"the profiled step took {times} times as long as a step without a profiler"
    if float(times) < 1:
        beside += ", because steps here differ by more than the profiler costs"
    spans = _Spans(step, events, {_NODE + name for name in reduction_nodes})
    for event in events:
        spans.read(event)
    return VariantTrace(variant, spans.timeline(), step_s, notes=(beside, _INFERRED))


def shortest_step(profile: Mapping[str, Any]) -> tuple[Event, list[Event]]:
    """The mark of the step that was disturbed least, and its events: by start, the longest first. Raise ValueError if
    none.
    """
    complete = [event for event in profile.get("traceEvents", ()) if event.get("ph") == "X"]
    steps = [event for event in complete if event["name"] == MARK + STEP_MARK and event.get("cat") == _MARK]
    if not steps:
        raise ValueError("the profiler recorded no marked step; allowed: a torch whose profiler records marks")
    step = min(steps, key=lambda event: event["dur"])
    other_events = (event for event in complete if event.get("cat") != _MARK or event["name"].startswith(MARK))
    inside = [event for event in other_events if event is not step and 0 <= event["ts"] - step["ts"] <= step["dur"]]
    return step, sorted(inside, key=lambda event: (event["ts"], -event["dur"]))


@dataclass(frozen=True)
class _Launch:
    start_s: float
    phase: str
    span: int | None


@dataclass
class _Spans:
    """The spans of the events that were read, in the order of their starts.

    `nodes` are the events that sum the lanes' gradients. `parts` has for a thread what it moves, and until when. `last`
    is the last span of each row, and `ended` has all finishes in order.
    """

    step: Event
    events: Sequence[Event]
    nodes: set[str]
    spans: list[Span] = field(default_factory=list)
    phase: str = Phase.FORWARD
    threads: dict[Any, str] = field(default_factory=dict)
    parts: dict[str, tuple[Moved, float]] = field(default_factory=dict)
    launches: dict[int, _Launch] = field(default_factory=dict)
    last: dict[TimelineRow, int] = field(default_factory=dict)
    ended: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.threads[self.step["tid"]] = "main thread"
        self.devices = sorted({event["args"]["device"] for event in self.events if event.get("cat") in _ON_DEVICE})
        self.is_staged = any(event.get("cat") == _COPY and "DtoH" in event["name"] for event in self.events)

    def timeline(self) -> Timeline:
        threads = [name for name in self.threads.values() if any(span.row.group == name for span in self.spans)]
        return Timeline(self.spans, [f"cuda:{number}" for number in self.devices] or threads)

    def read(self, event: Event) -> None:
        """Add the span of an event, or keep what later ones need."""
        category, name = event.get("cat"), event["name"].removeprefix(MARK)
        start_s = (event["ts"] - self.step["ts"]) * 1e-6
        finish_s, launch = start_s + event["dur"] * 1e-6, event.get("args", {}).get("correlation")
        if category in _ON_DEVICE:
            self._add(self._on_device(event, start_s, finish_s), self.launches.get(launch))
            return
        thread = self.threads.setdefault(event["tid"], f"thread {len(self.threads)}")
        row = TimelineRow(HOST, thread) if self.devices else TimelineRow(thread, "operators")
        last = self.last.get(row)
        if category == _MARK and name in list(Phase):
            self.phase = name
        elif category == _MARK and name in _PARTS:
            self.parts[thread] = _PARTS[name], finish_s
        elif category in _LAUNCHES and launch is not None:
            self.launches[launch] = _Launch(start_s, self.phase, last)
        elif category == _OPERATOR and (last is None or start_s >= self.spans[last].finish):
            span = Span(name.removeprefix(_NODE), Doing.HOST, row, start_s, finish_s, self.phase)
            self._add(span if self.devices else self._on_cpu(span, thread, name))

    def _on_cpu(self, span: Span, thread: str, name: str) -> Span:
        moved, until_s = self.parts.get(thread, (None, 0.0))
        moved = Moved.GRADIENTS if name in self.nodes else moved if span.start <= until_s else None
        return replace(span, doing=Doing.COMPUTE if moved is None else Doing.MOVE, device=thread, moved=moved)

    def _on_device(self, event: Event, start_s: float, finish_s: float) -> Span:
        launch = self.launches.get(event["args"].get("correlation"))
        phase, device = launch.phase if launch else self.phase, f"cuda:{event['args']['device']}"
        moved, row = self._moved(event, phase), TimelineRow(device, f"stream {event['args']['stream']}")
        doing, computes = (Doing.COMPUTE, device) if moved is None else (Doing.MOVE, None)
        return Span(event["name"], doing, row, start_s, finish_s, phase, computes, moved=moved)

    def _moved(self, event: Event, phase: str) -> Moved | None:
        """Return what a copy or an NCCL kernel carries, None for another kernel.

        If devices send to each other by way of the host, a copy from there may be of anything.
        """
        name = event["name"]
        if event["cat"] != _COPY:
            carried = (moved for word, moved in _NCCL.items() if word in name)
            return next(carried, Moved.BYTES) if name.startswith("nccl") else None
        if "HtoD" in name and phase == Phase.FORWARD and not self.is_staged:
            return Moved.INPUTS
        return Moved.GRADIENTS if phase == Phase.BACKWARD and ("PtoP" in name or self.is_staged) else Moved.BYTES

    def _add(self, span: Span, launch: _Launch | None = None) -> None:
        """Add a span with the one that it most likely waited for."""
        before, ready_s = self.last.get(span.row), 0.0
        if before is not None:
            ready_s = self.spans[before].finish
        if launch is not None and launch.start_s >= ready_s:
            before, ready_s = launch.span, launch.start_s
        if before is None or span.start - ready_s > _GAP_S:
            earlier = bisect_right(self.ended, (span.start, len(self.spans)))
            before = self.ended[earlier - 1][1] if earlier else None
        self.last[span.row] = len(self.spans)
        insort(self.ended, (span.finish, len(self.spans)))
        self.spans.append(replace(span, before=() if before is None else (before,)))
