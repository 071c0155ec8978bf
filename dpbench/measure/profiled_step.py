"""One step under torch.profiler, with marks at the edges of its phases."""

import json
import tempfile
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile, record_function

from dpbench.cases.case import Case
from dpbench.measure.clock import Clock, make_clock
from dpbench.measure.lane_threads import candidates
from dpbench.measure.phases import observe_step, reduction_nodes
from dpbench.measure.sample import settle
from dpbench.measure.session import Session, open_session
from dpbench.variants.registry import variant_of

_WARM_UP_S = 2.0
_MOST_WARM_UP = 50
_OTHERS = 10
_PROFILED = 5


@dataclass(frozen=True)
class Profile:
    """torch.profiler's Chrome trace, the seconds of steps without a profiler, and names of autograd nodes."""

    content: Mapping[str, Any]
    other_s: tuple[float, ...]
    reduction_nodes: tuple[str, ...]


def profile_step(case: Case, mark: str, step_mark: str) -> Profile:
    """Each step is within a mark `mark` + `step_mark`, each phase within `mark` + its name. Raises WorkloadError."""
    torch.set_num_threads(candidates(case, variant_of(case.variant))[0])
    session = open_session(case)
    idle = make_clock(session.placement.devices)
    nodes = _ReductionNodes(mark)
    observe_step(session, nodes)
    settle(session.step, session.trials_left)
    end_s = time.monotonic() + _WARM_UP_S
    for _ in range(_MOST_WARM_UP):
        session.step()
        if time.monotonic() > end_s:
            break
    other_steps_s = tuple(_step_s(session, idle) for _ in range(_OTHERS))
    return Profile(_profiled(session, idle, mark, mark + step_mark), other_steps_s, tuple(nodes.names))


def _step_s(session: Session, idle: Clock) -> float:
    begin_s = idle()
    session.step()
    return idle() - begin_s


def _profiled(session: Session, idle: Clock, mark: str, step_mark: str) -> dict[str, Any]:
    activities = [ProfilerActivity.CPU]
    if any(device.type == "cuda" for device in session.placement.devices):
        activities.append(ProfilerActivity.CUDA)
    # Without this, the profiler records the calling thread and those of autograd, but no lane's.
    threads = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    with profile(activities=activities, experimental_config=threads, acc_events=True) as profiler:
        observe_step(session, _Marks(mark))
        idle()
        for _ in range(_PROFILED):
            with record_function(step_mark):
                observe_step(session, _Marks(mark))
                idle()
    with tempfile.TemporaryDirectory(prefix="dpbench-trace-") as folder:
        path = Path(folder, "profile.json")
        profiler.export_chrome_trace(str(path))
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8", errors="replace"))
        return content


class _Marks:
    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._open: dict[str, AbstractContextManager[object]] = {}

    def begin(self, phase: str) -> None:
        self._open[phase] = record_function(self._mark + phase)
        self._open[phase].__enter__()

    def end(self, phase: str) -> None:
        self._open.pop(phase).__exit__(None, None, None)

    def end_open(self) -> None:
        for phase in reversed(list(self._open)):
            self.end(phase)

    def watch_reduction(self, loss: Tensor) -> None:
        """Do nothing: a search of the graph would take time within the profiled step."""


class _ReductionNodes(_Marks):
    def __init__(self, mark: str) -> None:
        super().__init__(mark)
        self.names: list[str] = []

    def begin(self, phase: str) -> None:
        self._open[phase] = nullcontext()

    def watch_reduction(self, loss: Tensor) -> None:
        self.names = sorted({node.name() for node in reduction_nodes(loss)})
