"""The gate judged: rounds and whole gates of code that is equal, or slower by a known share, on this machine.

Conditions take their turns, so that drift hits all alike. What was recorded stays in a file: a self-test that is
started again goes on where it stopped.
"""

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from math import expm1
from pathlib import Path
from statistics import median

from dpbench.errors import GateError
from dpbench.gate.self_test.inject import environment
from dpbench.gate.self_test.trials import Condition, Trial, read_trials
from dpbench.gate.settings import Benchmark, Cores, Settings
from dpbench.gate.take_round import Sides, take_round
from dpbench.gate.tier1 import measure_times, taking, verdict_of
from dpbench.results.files import append_line, open_locked, reason_of
from dpbench.run.runner import Launcher
from dpbench.run.start import child_command

ROUNDS, GATES = 60, 10
"""Of each condition."""

_CALIBRATING_LOOPS, _CALIBRATING_ROUNDS = 20_000, (2, 6)
_CALIBRATED_SHARE, _LEAST_SHARE = 0.1, 0.01

Progress = Callable[[str], object]


@dataclass(frozen=True)
class Bench:
    """What a self-test measures with: a commit's folder, and the same again to be planted in."""

    settings: Settings
    lanes: tuple[str, ...]
    base: Path
    planted: Path
    launch: Launcher
    budget_s: float

    def sides(self, loops: Mapping[str, int]) -> Sides:
        """Head with so many planted loops in each benchmark that is named."""
        return Sides(self.base, self.planted, {name: environment(count) for name, count in loops.items()})


def one_core(settings: Settings) -> list[Benchmark]:
    """Those that a planted slowdown is asked to be found in."""
    return [each for each in settings.benchmarks if each.cores is Cores.ONE]


def record(bench: Bench, path: Path, rounds: int, gates: int, progress: Progress) -> tuple[Trial, ...]:
    """All trials of the file, once those that lack are there too. Raises GateError."""
    done = {(trial.condition, trial.number, trial.gate is None) for trial in read_trials(path)}
    lacking = [each for each in _wanted(rounds, gates) if each not in done]
    loops = _loops_of_a_whole_step(bench, progress) if lacking else {}
    for i, (condition, number, is_round) in enumerate(lacking):
        progress(f"{i} of {len(lacking)} done; {'round' if is_round else 'gate'} {number + 1}, {condition}")
        with _loaded() if condition is Condition.LOADED else nullcontext():
            _append(path, (_round if is_round else _gate)(bench, condition, number, loops))
    return read_trials(path)


def _wanted(rounds: int, gates: int) -> Iterator[tuple[Condition, int, bool]]:
    """Gates are spread among the rounds, so that a part of the time has its part of both."""
    for number in range(max(rounds, gates)):
        of_rounds = range(number, min(number + 1, rounds))
        of_gates = range(number * gates // max(rounds, gates), (number + 1) * gates // max(rounds, gates))
        for is_round, numbers in ((True, of_rounds), (False, of_gates)):
            for each in numbers:
                for condition in Condition:
                    yield condition, each, is_round


def _loops_of_a_whole_step(bench: Bench, progress: Progress) -> dict[str, float]:
    """How many planted loops take as long as a step of each benchmark that they are planted in.

    First roughly, then with as many as slow each by about a tenth, so that it is known best where it is used.
    """
    names = [benchmark.name for benchmark in one_core(bench.settings)]
    loops = dict.fromkeys(names, float(_CALIBRATING_LOOPS))
    for rounds in _CALIBRATING_ROUNDS:
        shares: dict[str, list[float]] = {name: [] for name in names}
        planted = {name: round(count) for name, count in loops.items()}
        for number in range(rounds):
            progress(f"calibrating what is planted, round {number + 1} of {rounds}")
            taken = take_round(one_core(bench.settings), bench.sides(planted), number, bench.lanes, bench.launch)
            for name, ratio in taken.ratios.items():
                shares[name].append(expm1(ratio.contrast))
        whole = {name: planted[name] / max(median(found), _LEAST_SHARE) for name, found in shares.items()}
        loops = {name: count * _CALIBRATED_SHARE for name, count in whole.items()}
    return whole


def _round(bench: Bench, condition: Condition, number: int, loops: Mapping[str, float]) -> Trial:
    """Planted in every benchmark that is asked to find it, as each is a matter of its own; else of all."""
    sides = bench.sides({name: round(whole * condition.planted) for name, whole in loops.items()})
    benchmarks = one_core(bench.settings) if condition.planted else bench.settings.benchmarks
    started_at, start_s = _now(), time.monotonic()
    taken = take_round(benchmarks, sides, number, bench.lanes, bench.launch)
    return Trial(
        condition=condition,
        number=number,
        started_at=started_at,
        duration_s=time.monotonic() - start_s,
        rounds=taken.ratios,
        environment=taken.environment,
    )


def _gate(bench: Bench, condition: Condition, number: int, loops: Mapping[str, float]) -> Trial:
    """A whole one, with the slowdown in one benchmark after the other."""
    able = one_core(bench.settings)
    planted_in = able[number % len(able)].name if condition.planted else None
    sides = bench.sides({planted_in: round(loops[planted_in] * condition.planted)} if planted_in else {})
    started_at, start_s = _now(), time.monotonic()
    found = measure_times(
        bench.settings.benchmarks,
        taking(sides, bench.lanes, bench.launch),
        alarm_rate=bench.settings.alarm_rate,
        budget_s=bench.budget_s,
    )
    assert found.environment is not None
    return Trial(
        condition=condition,
        number=number,
        started_at=started_at,
        duration_s=time.monotonic() - start_s,
        gate=found.judgements,
        verdict=verdict_of(found.judgements),
        planted_in=planted_in,
        environment=found.environment,
    )


@contextmanager
def _loaded() -> Iterator[None]:
    """A second process that keeps one core busy, whichever the scheduler gives it."""
    with subprocess.Popen([*child_command("dpbench.run.child.busy_core"), str(os.getpid())]) as spinner:
        try:
            yield
        finally:
            spinner.kill()


def _append(path: Path, trial: Trial) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd, _ = open_locked(path)
        try:
            append_line(fd, trial.model_dump_json(by_alias=True, exclude_none=True).encode() + b"\n", "a trial")
        finally:
            os.close(fd)
    except OSError as error:
        raise GateError(f"{path}: cannot be written: {reason_of(error)}") from error


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
