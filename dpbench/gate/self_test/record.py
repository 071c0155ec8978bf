"""Record rounds and whole gates of code that is equal, or slower by a known share.

Conditions alternate, so that a drift of the machine hits all alike. The trials stay in a file: a self-test that is
started again records only what is missing.
"""

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dpbench.errors import GateError
from dpbench.gate.self_test.inject import environment_of, loops_per_step
from dpbench.gate.self_test.trials import Condition, SelfTestTrial, read_trials
from dpbench.gate.settings import Benchmark, Cores, Settings
from dpbench.gate.take_round import Sides, SuiteRound, take_round
from dpbench.gate.tier1 import measure_times, round_taker, verdict_of
from dpbench.results.files import append_once, reason_of
from dpbench.run.launch import Launcher
from dpbench.run.messages import Timed
from dpbench.run.start import child_command

ROUNDS, GATES = 60, 10
"""The default numbers of rounds and of whole gates for each condition."""

Progress = Callable[[str], object]


@dataclass(frozen=True)
class Setup:
    """The conditions that all trials of a self-test share.

    `base` is the folder of a commit, `slowed` a folder of the same commit with a loop injected.
    """

    settings: Settings
    lanes: tuple[str, ...]
    base: Path
    slowed: Path
    launch: Launcher
    budget_s: float

    def sides(self, loops: Mapping[str, int]) -> Sides:
        """Base, and head with this many iterations of the loop in the named benchmarks."""
        return Sides(self.base, self.slowed, {name: environment_of(count) for name, count in loops.items()})


def one_core(settings: Settings) -> list[Benchmark]:
    """The benchmarks that can get a slowdown: the steps on one core."""
    return [each for each in settings.benchmarks if each.cores is Cores.ONE and each.timed is Timed.STEP]


def slowed_in_turn(settings: Settings, slowdown: float) -> list[Benchmark]:
    """Those of `one_core` that should be called slower after a `slowdown`: it is above their threshold.

    If it is above none, all of `one_core`.
    """
    able = one_core(settings)
    return [each for each in able if each.threshold < slowdown] or able


def record_trials(setup: Setup, path: Path, rounds: int, gates: int, progress: Progress) -> tuple[SelfTestTrial, ...]:
    """Record the missing trials, and return all trials of the file. Raises GateError."""
    done = {(trial.condition, trial.number, trial.gate is None) for trial in read_trials(path)}
    missing = [each for each in _wanted(rounds, gates) if each not in done]
    loops = _calibrate(setup, progress) if missing else {}
    for i, (condition, number, is_round) in enumerate(missing):
        progress(f"{i} of {len(missing)} done; {'round' if is_round else 'gate'} {number + 1}, {condition}")
        with _loaded() if condition is Condition.LOADED else nullcontext():
            _append(path, (_round if is_round else _gate)(setup, condition, number, loops))
    return read_trials(path)


def _wanted(rounds: int, gates: int) -> Iterator[tuple[Condition, int, bool]]:
    """Spread the gates among the rounds, so that a self-test that is stopped early has both."""
    for number in range(max(rounds, gates)):
        of_rounds = range(number, min(number + 1, rounds))
        of_gates = range(number * gates // max(rounds, gates), (number + 1) * gates // max(rounds, gates))
        for is_round, numbers in ((True, of_rounds), (False, of_gates)):
            for each in numbers:
                for condition in Condition:
                    yield condition, each, is_round


def _calibrate(setup: Setup, progress: Progress) -> dict[str, float]:
    benchmarks = one_core(setup.settings)

    def take(loops: Mapping[str, int], number: int) -> SuiteRound:
        return take_round(benchmarks, setup.sides(loops), number, setup.lanes, setup.launch)

    return loops_per_step([benchmark.name for benchmark in benchmarks], take, progress)


def _round(setup: Setup, condition: Condition, number: int, loops: Mapping[str, float]) -> SelfTestTrial:
    """Take a round of all benchmarks, or of those on one core if head is slower.

    A slower head has the slowdown in each of them: benchmarks are independent, so one round serves all.
    """
    sides = setup.sides({name: round(per_step * condition.slowdown) for name, per_step in loops.items()})
    benchmarks = one_core(setup.settings) if condition.slowdown else setup.settings.benchmarks
    started_at, start_s = _now(), time.monotonic()
    taken = take_round(benchmarks, sides, number, setup.lanes, setup.launch)
    return SelfTestTrial(
        condition=condition,
        number=number,
        started_at=started_at,
        duration_s=time.monotonic() - start_s,
        rounds=taken.ratios,
        environment=taken.environment,
    )


def _gate(setup: Setup, condition: Condition, number: int, loops: Mapping[str, float]) -> SelfTestTrial:
    """Run tier 1 of a whole gate.

    A slowdown is in one benchmark of `slowed_in_turn`: gate n has it in number n modulo their count.
    """
    able = slowed_in_turn(setup.settings, condition.slowdown)
    slowed = able[number % len(able)].name if condition.slowdown else None
    sides = setup.sides({slowed: round(loops[slowed] * condition.slowdown)} if slowed else {})
    started_at, start_s = _now(), time.monotonic()
    found = measure_times(
        setup.settings.benchmarks,
        round_taker(sides, setup.lanes, setup.launch),
        alarm_rate=setup.settings.alarm_rate,
        budget_s=setup.budget_s,
    )
    assert found.environment is not None
    return SelfTestTrial(
        condition=condition,
        number=number,
        started_at=started_at,
        duration_s=time.monotonic() - start_s,
        gate=found.judgements,
        verdict=verdict_of(found.judgements),
        planted_in=slowed,
        environment=found.environment,
    )


@contextmanager
def _loaded() -> Iterator[None]:
    """Run a process that keeps one core busy. The scheduler chooses the core."""
    with subprocess.Popen([*child_command("dpbench.run.child.busy_core"), str(os.getpid())]) as spinner:
        try:
            yield
        finally:
            spinner.kill()


def _append(path: Path, trial: SelfTestTrial) -> None:
    try:
        append_once(path, trial.model_dump_json(by_alias=True, exclude_none=True).encode() + b"\n", "a trial")
    except OSError as error:
        raise GateError(f"{path}: cannot be written: {reason_of(error)}") from error


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
