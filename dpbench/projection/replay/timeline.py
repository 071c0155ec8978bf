"""A projected step in Chrome's trace format, which Perfetto opens. Pure.

Times are in microseconds. Each resource is a thread of one of three processes: host, devices and links.
"""

from typing import Any

from dpbench.projection.replay.fifo import Schedule
from dpbench.projection.replay.tasks import Role, Tasks

_PROCESSES = {Role.HOST: 1, Role.COMPUTE: 2, Role.LINK: 3}
_NAMES = {Role.HOST: "host", Role.COMPUTE: "devices", Role.LINK: "links"}


def chrome_trace(tasks: Tasks, found: Schedule) -> dict[str, Any]:
    """Return the object to write as JSON."""
    threads: dict[str, int] = {}
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": number, "args": {"name": _NAMES[role]}}
        for role, number in _PROCESSES.items()
    ]
    for i in found.order:
        task = tasks.all[i]
        for resource in task.resources:
            if resource not in threads:
                threads[resource] = len(threads) + 1
                about = {"ph": "M", "name": "thread_name", "pid": _PROCESSES[task.role], "tid": threads[resource]}
                events.append({**about, "args": {"name": resource}})
            events.append(
                {
                    "ph": "X",
                    "name": task.name,
                    "cat": task.phase,
                    "pid": _PROCESSES[task.role],
                    "tid": threads[resource],
                    "ts": found.starts[i] * 1e6,
                    "dur": (found.finishes[i] - found.starts[i]) * 1e6,
                }
            )
    return {"traceEvents": events, "displayTimeUnit": "ms"}
