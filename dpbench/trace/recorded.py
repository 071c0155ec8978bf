"""A profiled step as a timeline.

A thread of the host shows its outermost operators. On CPU lanes they compute, except in the parts of the wrapper that
move data: scatter, replicate, gather, and the sums of gradients. With CUDA kernels the threads only issue work, and
each stream has a row of kernels and copies.

The profiler records no waits. So what a span waited for is inferred: a kernel waited for its launch, or for the one
before it in its stream; an operator for the one before it in its thread. After a gap it waited for what ended last.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median

from dpbench.records.counts import Phase
from dpbench.trace.profiled import ProfiledEvent, ProfiledKind, ProfiledStep
from dpbench.trace.timeline import HOST_GROUP, Doing, Moved, RowNumbers, Span, Timeline, VariantTrace

_GAP_S = 20e-6
"""A shorter gap between two operators of a thread is the interpreter's own."""
_NODE = "autograd::engine::evaluate_function: "
_PARTS = {"scatter": Moved.INPUTS, "replicate": Moved.PARAMETERS, "gather": Moved.OUTPUTS}
_NCCL = {"Broadcast": Moved.PARAMETERS, "Reduce": Moved.GRADIENTS}
_INFERRED = "what each operator waited for is inferred from the times: a profile has no waits"


def recorded_trace(variant: str, step: ProfiledStep) -> VariantTrace:
    """Return the trace of a profiled step. Its step time is the median of steps without a profiler."""
    step_s = median(step.other_s)
    times = f"{step.length_s / step_s:.1f}"
    beside = f"the profiled step took {times} times as long as a step without a profiler"
    if float(times) < 1:
        beside += ", because steps here differ by more than the profiler costs"
    return VariantTrace(variant, recorded_timeline(step), step_s, notes=(beside, _INFERRED))


def recorded_timeline(step: ProfiledStep) -> Timeline:
    """Return the profiled operators, kernels and copies as spans."""
    return _Profile(step).timeline()


def thread_name(number: int) -> str:
    return "main thread" if number == 0 else f"thread {number}"


class _Profile:
    def __init__(self, step: ProfiledStep) -> None:
        events = step.events
        self._nodes = {_NODE + name for name in step.reduction_nodes}
        self._on_device = [event for event in events if event.device is not None]
        self._launches = {e.launch: e for e in events if e.kind is ProfiledKind.LAUNCH and e.launch is not None}
        self._marks = [event for event in events if event.kind is ProfiledKind.MARK]
        self._phases = [(event.start_s, event.name) for event in self._marks if event.name in list(Phase)]
        threads = sorted({event.place for event in events if event.kind is ProfiledKind.OPERATOR})
        self._of_thread = {thread: outermost(events, thread) for thread in threads}
        self._is_staged = any(e.kind is ProfiledKind.COPY and "DtoH" in e.name for e in self._on_device)
        self._rows = RowNumbers()

    def timeline(self) -> Timeline:
        hosts = [(span, None) for own in self._of_thread.items() for span in self._host_spans(*own)]
        on_device = [(self._device_span(event), self._launch_of(event)) for event in self._on_device]
        found = sorted([*hosts, *on_device], key=lambda each: (each[0].start, each[0].finish))
        if self._on_device:
            devices = [f"cuda:{number}" for number in sorted({event.device or 0 for event in self._on_device})]
        else:
            devices = [thread_name(number) for number in self._of_thread]
        return Timeline(self._rows.rows(), self._with_causes(found), devices)

    def _phase_at(self, at_s: float) -> str:
        place = bisect_right(self._phases, at_s, key=lambda each: each[0]) - 1
        return self._phases[max(place, 0)][1] if self._phases else ""

    def _host_spans(self, thread: int, operators: Sequence[ProfiledEvent]) -> Iterable[Span]:
        name = thread_name(thread)
        row = self._rows.of(HOST_GROUP, name) if self._on_device else self._rows.of(name, "operators")
        for event in operators:
            moved = None if self._on_device else self._moved_on_host(event)
            doing = Doing.MOVE if moved is not None else Doing.HOST if self._on_device else Doing.COMPUTE
            yield Span(
                name=event.name.removeprefix(_NODE),
                doing=doing,
                rows=(row,),
                start=event.start_s,
                finish=event.start_s + event.length_s,
                phase=self._phase_at(event.start_s),
                device=None if self._on_device else name,
                moved=moved,
            )

    def _moved_on_host(self, event: ProfiledEvent) -> Moved | None:
        if event.name in self._nodes:
            return Moved.GRADIENTS
        parts = (
            _PARTS[mark.name]
            for mark in self._marks
            if mark.name in _PARTS and mark.place == event.place and _contains(mark, event)
        )
        return next(parts, None)

    def _launch_of(self, event: ProfiledEvent) -> ProfiledEvent | None:
        return None if event.launch is None else self._launches.get(event.launch)

    def _device_span(self, event: ProfiledEvent) -> Span:
        launch = self._launch_of(event)
        phase = self._phase_at(launch.start_s if launch else event.start_s)
        device = f"cuda:{event.device}"
        moved = _moved_on_device(event, phase, is_staged=self._is_staged)
        return Span(
            name=event.name,
            doing=Doing.COMPUTE if moved is None else Doing.MOVE,
            rows=(self._rows.of(device, f"stream {event.place}"),),
            start=event.start_s,
            finish=event.start_s + event.length_s,
            phase=phase,
            device=device if moved is None else None,
            moved=moved,
        )

    def _with_causes(self, found: Sequence[tuple[Span, ProfiledEvent | None]]) -> list[Span]:
        """Return the spans, sorted by start, each with the one span that it most likely waited for.

        A span on a device comes with its launch, if the profiler recorded that.
        """
        spans = [span for span, _ in found]
        ended = _Ended(spans)
        last: dict[int, int] = {}
        caused = []
        for i, (span, launch) in enumerate(found):
            before = last.get(span.rows[0])
            ready_s = spans[before].finish if before is not None else 0.0
            if launch is not None and launch.start_s >= ready_s:
                ready_s, before = launch.start_s, last.get(self._rows.of(HOST_GROUP, thread_name(launch.place)))
            if before is None or span.start - ready_s > _GAP_S:
                before = ended.last_before(i)
            caused.append(replace(span, before=() if before is None else (before,)))
            last[span.rows[0]] = i
        return caused


class _Ended:
    """Finds the span that ended last before another one starts. `spans` are sorted by start."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = spans
        self._order = sorted(range(len(spans)), key=lambda i: spans[i].finish)
        self._finishes = [spans[i].finish for i in self._order]

    def last_before(self, i: int) -> int | None:
        """Return its position, None if there is none."""
        place = bisect_right(self._finishes, self._spans[i].start) - 1
        earlier = (self._order[at] for at in range(place, -1, -1) if self._order[at] < i)
        return next(earlier, None)


def outermost(events: Iterable[ProfiledEvent], thread: int) -> list[ProfiledEvent]:
    """Return the operators of a thread outside all others. `events` are sorted by start, the longest first."""
    found: list[ProfiledEvent] = []
    end_s = float("-inf")
    for event in events:
        if event.kind is ProfiledKind.OPERATOR and event.place == thread and event.start_s >= end_s:
            found.append(event)
            end_s = event.start_s + event.length_s
    return found


def _contains(outer: ProfiledEvent, inner: ProfiledEvent) -> bool:
    return outer.start_s <= inner.start_s <= outer.start_s + outer.length_s


def _moved_on_device(event: ProfiledEvent, phase: str, *, is_staged: bool) -> Moved | None:
    """Return what a copy or an NCCL kernel carries, None for another kernel.

    With `is_staged` devices send to each other by way of the host, so a copy from there may be of anything.
    """
    if event.kind is ProfiledKind.COPY:
        if "HtoD" in event.name and phase == Phase.FORWARD and not is_staged:
            return Moved.INPUTS
        is_between = "PtoP" in event.name or is_staged
        return Moved.GRADIENTS if is_between and phase == Phase.BACKWARD else Moved.BYTES
    if event.name.startswith("nccl"):
        return next((moved for word, moved in _NCCL.items() if word in event.name), Moved.BYTES)
    return None
