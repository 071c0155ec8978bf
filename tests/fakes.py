"""Fakes of the project's seams: the clock, the team of processes, the launcher, NVML."""

from collections.abc import Callable, Iterable, Iterator

from dpbench.engine.launch import Exit
from dpbench.engine.messages import Job
from dpbench.records.record import Environment, Metrics, Outcome, Record
from tests.fake_nvml import FakeGpu, FakeNvml, Levels  # noqa: F401  # NVML's fake has a file of its own


class ScriptedClock:
    """A clock that stands still until `advance`, which a fake step calls."""

    def __init__(self) -> None:
        self.time_s = 0.0

    def __call__(self) -> float:
        return self.time_s

    def advance(self, seconds: float) -> None:
        self.time_s += seconds


class ScriptedSteps:
    """A step that takes the next of the given times; the last time repeats."""

    def __init__(self, clock: ScriptedClock, times_s: Iterable[float]) -> None:
        self._clock = clock
        self._times_s: Iterator[float] = iter(times_s)
        self._last_s = 0.0
        self.taken = 0

    def __call__(self) -> None:
        self._last_s = next(self._times_s, self._last_s)
        self._clock.advance(self._last_s)
        self.taken += 1


class FakeTeam:
    """A team whose other rank is slower by `lag_s` on every step."""

    rank = 0
    size = 2

    def __init__(self, lag_s: float) -> None:
        self._lag_s = lag_s

    def line_up(self) -> None:
        pass

    def slowest(self, step_s: float, elapsed_s: float) -> tuple[float, float, float]:
        return step_s + self._lag_s, self._lag_s, elapsed_s

    def gather(self, facts):
        return [facts, facts]


class FakeEdges:
    """Keeps when the window began and ended, by `clock`, and how many steps were in it."""

    def __init__(self, clock: ScriptedClock) -> None:
        self._clock = clock
        self.began_s: float | None = None
        self.ended_s: float | None = None
        self.steps: int | None = None

    def begin(self) -> None:
        self.began_s = self._clock()

    def end(self, steps: int) -> None:
        self.ended_s, self.steps = self._clock(), steps


class FakeRunner:
    """Calls `child` instead of starting a process. `jobs` are those it got, `timeouts_s` their limits.

    `ended` counts the calls of `end_round`.
    """

    def __init__(self, child: Callable[[Job], Exit]) -> None:
        self._child = child
        self.jobs: list[Job] = []
        self.timeouts_s: list[float] = []
        self.ended = 0

    def end_round(self) -> None:
        self.ended += 1

    def launch(self, job: Job, timeout_s: float) -> Exit:
        self.jobs.append(job)
        self.timeouts_s.append(timeout_s)
        return self._child(job)


def ok_record(job: Job, samples_s: tuple[float, ...] = (0.1, 0.1)) -> Record:
    """Return the record of a child that measured the job."""
    return Record(
        run=job.run,
        case=job.case,
        round=job.round,
        started_at="2026-01-01T00:00:00.000+00:00",
        outcome=Outcome.OK,
        samples_s=samples_s,
        metrics=Metrics(threads_per_lane=1, warmup_steps=1, stopped_by="budget"),
        environment=Environment(
            hostname="fake", os="Linux", python="3.11", torch="2.13.0", cpu_model="fake", cores=2, dpbench="0"
        ),
    )


def ended(returncode: int = 0, record: Record | bytes = b"", duration_s: float = 1.0, tail: bytes = b"") -> Exit:
    """Return how a child ended that wrote this record."""
    answer = record if isinstance(record, bytes) else record.model_dump_json(by_alias=True).encode()
    return Exit(
        started_at="2026-01-01T00:00:00.000+00:00",
        duration_s=duration_s,
        returncode=returncode,
        record=answer,
        tail=tail,
    )
