"""A projected step as a timeline: the replay's tasks at their times in the mid case."""

import re
from collections.abc import Iterable

from dpbench.projection.project import Projection
from dpbench.projection.replay.rates import end_of
from dpbench.projection.replay.tasks import LOCK, Role, Task
from dpbench.trace.moved import moved_by, moved_by_collective, staged_from
from dpbench.trace.timeline import HOST_GROUP, LINK_GROUP, Doing, Moved, RowNumbers, Span, Timeline, VariantTrace

_DOING = {Role.HOST: Doing.HOST, Role.COMPUTE: Doing.COMPUTE, Role.LINK: Doing.MOVE}
_COPY = re.compile(r"copy (\S+) to (\S+)")
_NO_LONGER = 1.0005


def projected_trace(variant: str, found: Projection) -> VariantTrace:
    """Return the trace of a projection. Its step time is the one that `dpbench project` prints."""
    timeline = projected_timeline(found)
    step_s = found.step_time_s.mid
    notes = []
    if step_s > timeline.length * _NO_LONGER:
        more = step_s / timeline.length - 1
        notes.append(f"the step is {more:.1%} longer than the drawing, because the slowest device sets the pace")
    if found.devices > 1 and len(timeline.devices) == 1:
        notes.append(f"one rank is drawn, and stands for all {found.devices}")
    return VariantTrace(variant, timeline, step_s, found.hidden, tuple(notes))


def projected_timeline(found: Projection) -> Timeline:
    """Return the tasks of a projection as spans. A task of a stream is on the stream's row, a copy on its links too."""
    tasks, times = found.tasks, found.schedule
    used = sorted({device for task in tasks.all for device, _ in task.streams})
    numbers, rows = StreamNames(), RowNumbers()
    spans = []
    for i, task in enumerate(tasks.all):
        what, lane = _moved(task, [tasks.all[earlier].name for earlier in sorted(task.before)])
        spans.append(
            Span(
                name=task.name,
                doing=_DOING[task.role],
                rows=_rows(task, rows, numbers, found.devices),
                start=times.starts[i],
                finish=times.finishes[i],
                phase=task.phase,
                device=None if task.device is None else device_name(task.device),
                before=tuple({*task.before, *times.follows[i]}),
                moved=what,
                lane=lane,
            )
        )
    return Timeline(rows.rows(), spans, [device_name(each) for each in used])


def device_name(number: int) -> str:
    return f"device {number}"


def thread_name(number: int, devices: int) -> str:
    """Return the name of a thread of the host. `results/recording.py` says how threads are numbered."""
    if number == 0:
        return "main thread"
    if number <= devices:
        return f"thread of lane {number - 1}"
    return f"backward thread of device {number - devices - 1}"


class StreamNames:
    """The streams of each device, numbered from 1 in the order of their first use."""

    def __init__(self) -> None:
        self._numbers: dict[int, dict[int, int]] = {}

    def name(self, device: int, stream: int) -> str:
        own = self._numbers.setdefault(device, {})
        return f"stream {own.setdefault(stream, len(own) + 1)}"


def _rows(task: Task, rows: RowNumbers, streams: StreamNames, devices: int) -> tuple[int, ...]:
    if task.role is Role.HOST:
        threads = [name for name in task.resources if name != LOCK]
        return tuple(rows.of(HOST_GROUP, thread_name(int(name.removeprefix("thread ")), devices)) for name in threads)
    own = [rows.of(device_name(device), streams.name(device, stream)) for device, stream in task.streams]
    links = [rows.of(LINK_GROUP, name) for name in task.resources] if task.role is Role.LINK else []
    return (*own, *links)


def _moved(task: Task, before: Iterable[str]) -> tuple[Moved | None, int | None]:
    if task.role is not Role.LINK:
        return None, None
    if match := _COPY.fullmatch(task.name):
        return moved_by(task.phase, end_of(match[1]), end_of(match[2]), staged_from(before))
    return moved_by_collective(task.name), None
