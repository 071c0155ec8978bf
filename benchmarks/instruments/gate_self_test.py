"""How often the gate is right on this machine: its verdicts on equal code, and on code that is slower by a known share.

    python -m benchmarks.instruments.gate_self_test [--base HEAD] [--rounds 60] [--gates 10] [--results results]

Under each condition it records rounds and whole gates of a commit and its copy, whose forward has an empty loop. From
the rounds it draws gates, by the gate's own loop and rules. It takes an hour.

    gate/self-test-HOST.jsonl   a line for each round and each whole gate; a later call records only what is missing
    gate/self-test-HOST.json    the verdicts, which later gates on such machines cite

The exit code is 1 if equal code is called slower more often than designed, and 2 if the gate cannot be tested.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from math import exp, expm1
from pathlib import Path
from random import Random
from statistics import fmean, median, stdev
from typing import Any, Literal

from pydantic import Field

from benchmarks.instruments.about import heading
from dpbench.engine.launch import Launcher, launch
from dpbench.engine.messages import Timed
from dpbench.engine.wrapper_of import has_wrapper
from dpbench.errors import ReportedError
from dpbench.gate.judgement import TimeJudgement, Verdict
from dpbench.gate.prepare import timed_settings
from dpbench.gate.revisions import Repository, gate_folder
from dpbench.gate.rounds import RoundRatio, SuiteRound, take_round
from dpbench.gate.settings import Benchmark, Cores, Settings
from dpbench.gate.sides import Sides
from dpbench.gate.time_sides import measure_times
from dpbench.judge.intervals import clopper_pearson
from dpbench.records.record import Environment
from dpbench.records.row import SCHEMA, Row
from dpbench.records.store import append_row, read_rows
from dpbench.text.files import replace_text
from dpbench.text.outside import one_line

EQUAL = "equal"
"""The condition in which head is base and nothing else runs."""
LOADED = "equal, one core loaded"
SLOWDOWNS = {EQUAL: 0.0, LOADED: 0.0, "2 % slower": 0.02, "5 % slower": 0.05, "10 % slower": 0.10}
"""The share by which head is slower than base, by condition."""
BUDGET_S, DRAWN = 300.0, 2000
LOOPS = "DPBENCH_INJECTED_LOOPS"
"""The environment variable with the iterations of the loop in each forward, so that one folder serves all slowdowns."""
INJECTED = f"""

def _inject() -> None:
    import os

    loops, forward = int(os.environ.get("{LOOPS}", "0")), DataParallel.forward

    def slower(self, *inputs, **kwargs):
        for _ in range(loops):
            pass
        return forward(self, *inputs, **kwargs)

    DataParallel.forward = slower


_inject()
"""


class Trial(Row):
    """A round with its ratios by benchmark, or a whole gate with its judgements and the slowed benchmark."""

    kind: Literal["trial"] = "trial"
    condition: str
    number: int
    started_at: str
    duration_s: float = Field(gt=0, allow_inf_nan=False)
    rounds: dict[str, RoundRatio] = Field(default_factory=dict)
    gate: tuple[TimeJudgement, ...] | None = None
    verdict: Verdict | None = None
    planted_in: str | None = None
    environment: Environment


@dataclass(frozen=True)
class Setup:
    """`base` is a commit's folder, `slowed` another one with the loop injected."""

    settings: Settings
    lanes: tuple[str, ...]
    base: Path
    slowed: Path
    launch: Launcher = launch

    def take(self, benchmarks: Sequence[Benchmark], number: int, loops: Mapping[str, float]) -> SuiteRound:
        """Take a round with loops of these lengths, by benchmark."""
        injected = {name: {LOOPS: str(round(count))} for name, count in loops.items()}
        sides = Sides(self.base, self.slowed, self.launch, head_environment=injected)
        return take_round(benchmarks, sides, number, self.lanes)


def one_core(settings: Settings) -> list[Benchmark]:
    """Those that can get a slowdown: the steps on one core."""
    return [
        benchmark for benchmark in settings.benchmarks if benchmark.cores is Cores.ONE and benchmark.timed is Timed.STEP
    ]


def slowed_in_turn(settings: Settings, slowdown: float) -> list[str]:
    """Those of `one_core` whose threshold is below the slowdown; all of them if none is."""
    able = one_core(settings)
    seen = [benchmark for benchmark in able if benchmark.threshold < slowdown]
    return [benchmark.name for benchmark in seen or able]


def loops_per_step(setup: Setup) -> dict[str, float]:
    """How many iterations take as long as a step: roughly, then at a tenth of a step."""
    benchmarks = one_core(setup.settings)
    injected, per_step = {benchmark.name: 20_000.0 for benchmark in benchmarks}, dict[str, float]()
    for rounds in (2, 6):
        taken = [setup.take(benchmarks, number, injected).ratios for number in range(rounds)]
        for name, count in injected.items():
            per_step[name] = round(count) / max(median(expm1(ratios[name].median.head) for ratios in taken), 0.01)
        injected = {name: count / 10 for name, count in per_step.items()}
    return per_step


def record(setup: Setup, path: Path, rounds: int, gates: int) -> list[Trial]:
    """Append the missing trials, and return all. Conditions alternate, so that a drift hits all alike."""
    trials = read_trials(path, setup.settings)
    done = {(trial.condition, trial.number, trial.gate is None) for trial in trials}
    missing = [trial for trial in wanted(rounds, gates) if trial not in done]
    loops = loops_per_step(setup) if missing else {}
    for count, (condition, number, is_round) in enumerate(missing):
        kind = "round" if is_round else "gate"
        print(f"{count} of {len(missing)} done; {kind} {number + 1}, {condition}", file=sys.stderr)
        started_at, start_s = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
        with busy_core() if condition == LOADED else nullcontext():
            outcome = (round_of if is_round else gate_of)(setup, condition, number, loops)
        timed = {"started_at": started_at, "duration_s": time.monotonic() - start_s}
        trial = Trial(condition=condition, number=number, **timed, **outcome)
        if trials and trials[0].environment.machine() != trial.environment.machine():
            raise ValueError(
                f"{path}: has trials of another machine of this name; allowed: this one's, so move it away"
            )
        trials.append(trial)
        append_row(path, trial, 5.0)
    return trials


def read_trials(path: Path, settings: Settings) -> list[Trial]:
    """None if there is no file. A torn end is left out. Raises ValueError."""
    if not path.exists():
        return []
    trials = list(read_rows(path, Trial).rows)
    recorded = {name for trial in trials for name in trial.rounds}
    asked = {benchmark.name for benchmark in settings.benchmarks}
    if (recorded and recorded != asked) or any(trial.condition not in SLOWDOWNS for trial in trials):
        raise ValueError(f"{path}: has other trials; allowed: those of {', '.join(sorted(asked))}, so move it away")
    return trials


def wanted(rounds: int, gates: int) -> Iterator[tuple[str, int, bool]]:
    """Condition, number and whether it is a round. A test that is stopped early has rounds and gates."""
    most = max(rounds, gates)
    for number in range(most):
        for is_round, count in ((True, rounds), (False, gates)):
            for trial_number in range(number * count // most, (number + 1) * count // most):
                yield from ((condition, trial_number, is_round) for condition in SLOWDOWNS)


def round_of(setup: Setup, condition: str, number: int, loops: Mapping[str, float]) -> dict[str, Any]:
    """Of all benchmarks; if head is slower, of those on one core, each with the slowdown."""
    slowdown = SLOWDOWNS[condition]
    benchmarks = one_core(setup.settings) if slowdown else setup.settings.benchmarks
    taken = setup.take(benchmarks, number, {name: iterations * slowdown for name, iterations in loops.items()})
    return {"rounds": taken.ratios, "environment": taken.environment}


def gate_of(setup: Setup, condition: str, number: int, loops: Mapping[str, float]) -> dict[str, Any]:
    """Tier 1 of a whole gate. A slowdown is in one benchmark, and in the next one in the next gate."""
    slowdown, able = SLOWDOWNS[condition], slowed_in_turn(setup.settings, SLOWDOWNS[condition])
    slowed = able[number % len(able)] if slowdown else None
    injected = {slowed: loops[slowed] * slowdown} if slowed else {}
    times = measure_times(
        setup.settings.benchmarks,
        lambda benchmarks, number: setup.take(benchmarks, number, injected),
        alarm_rate=setup.settings.alarm_rate,
        budget_s=BUDGET_S,
    )
    return {
        "gate": times.judgements,
        "verdict": times.verdict,
        "planted_in": slowed,
        "environment": times.environment,
    }


@contextmanager
def busy_core() -> Iterator[None]:
    """Keep one core busy, of the scheduler's choice, by a process that ends with this one."""
    spin = f"import os\nwhile os.getppid() == {os.getpid()}: pass"
    with subprocess.Popen([sys.executable, "-c", spin]) as spinner:
        try:
            yield
        finally:
            spinner.kill()


Ratios = Mapping[str, Sequence[RoundRatio]]
"""The recorded rounds of one condition, by benchmark."""


def draw_gates(settings: Settings, equal: Ratios, slower: Ratios, slowdown: float, round_s: float) -> list[Verdict]:
    """Verdicts of gates whose rounds are drawn with replacement. Each round moves the gate's clock.

    Gate i draws the benchmark at i of `slowed_in_turn` from `slower`, the others from `equal`.
    """
    able, rng = slowed_in_turn(settings, slowdown), Random(0)
    slowed = [able[number % len(able)] for number in range(DRAWN)]
    return [_drawn(settings, {**equal, name: slower[name]}, round_s, rng) for name in slowed]


def _drawn(settings: Settings, ratios: Ratios, round_s: float, rng: Random) -> Verdict:
    now_s = 0.0

    def take(benchmarks: Sequence[Benchmark], _: int) -> SuiteRound:
        nonlocal now_s
        now_s += round_s * len(benchmarks) / len(ratios)  # a round of fewer benchmarks is shorter in proportion
        return SuiteRound({benchmark.name: rng.choice(ratios[benchmark.name]) for benchmark in benchmarks})

    benchmarks, rate = settings.benchmarks, settings.alarm_rate
    times = measure_times(benchmarks, take, alarm_rate=rate, budget_s=BUDGET_S, clock=lambda: now_s)
    return times.verdict


def result_of(trials: Sequence[Trial], settings: Settings) -> dict[str, Any]:
    """The result's file. The trials need two rounds of every condition."""
    tested = {condition: _tested(condition, trials, settings) for condition in SLOWDOWNS}
    drawn = tested[EQUAL]["drawn"]
    return {
        "schema": SCHEMA,
        "kind": "self-test",
        "rounds": tested[EQUAL]["spreads"][0]["rounds"],
        "slower": drawn["slower"],
        "not_slower": drawn["undecided"] + drawn["passed"],
        "tested": list(tested.values()),
        "alarm_rate": settings.alarm_rate,
        "budget_s": BUDGET_S,
        "began": min(trial.started_at for trial in trials),
        "ended": max(trial.started_at for trial in trials),
        "environment": trials[-1].environment.model_dump(mode="json"),
    }


def _tested(condition: str, trials: Sequence[Trial], settings: Settings) -> dict[str, Any]:
    """Verdicts of drawn and whole gates, and the standard deviations between rounds, of logarithms."""
    slowdown = SLOWDOWNS[condition]
    of, equal = ([trial for trial in trials if trial.condition == name] for name in (condition, EQUAL))
    equal = equal if slowdown else of
    whole = [trial for trial in of if trial.gate is not None]
    named = [
        {judgement.benchmark for judgement in trial.gate or () if judgement.verdict is Verdict.SLOWER}
        for trial in whole
    ]
    round_s = fmean(trial.duration_s for trial in equal if trial.gate is None)
    ratios = _ratios(of)
    return {
        "condition": condition,
        "spreads": [
            {
                "benchmark": name,
                "rounds": len(of_rounds),
                "ratio": exp(fmean(ratio.median.head for ratio in of_rounds)),
                "spread": stdev([ratio.median.head for ratio in of_rounds]),
                "twin_spread": stdev([ratio.median.twin for ratio in of_rounds]),
            }
            for name, of_rounds in ratios.items()
        ],
        "drawn": _counted(draw_gates(settings, _ratios(equal), ratios, slowdown, round_s)),
        "whole": _counted([trial.verdict for trial in whole]),
        "faster": sum(any(judgement.verdict is Verdict.FASTER for judgement in trial.gate or ()) for trial in whole),
        "found": sum(trial.planted_in in slower for trial, slower in zip(whole, named, strict=True)),
        "median_s": median([trial.duration_s for trial in whole]) if whole else None,
        "longest_s": max((trial.duration_s for trial in whole), default=None),
    }


def _ratios(trials: Sequence[Trial]) -> Ratios:
    names = sorted({name for trial in trials for name in trial.rounds})
    return {name: [trial.rounds[name] for trial in trials if name in trial.rounds] for name in names}


def _counted(verdicts: Sequence[Verdict | None]) -> dict[str, int]:
    names = {"slower": Verdict.SLOWER, "undecided": Verdict.UNDECIDED, "passed": Verdict.PASS}
    return {name: verdicts.count(verdict) for name, verdict in names.items()}


def self_test(base: str, rounds: int, gates: int, results: Path) -> dict[str, Any]:
    repository = Repository(Path.cwd())
    commit = str(repository.resolve("--base", base).commit)
    lanes, settings = timed_settings(repository, None, launch)
    if not one_core(settings):
        raise ValueError('benchmarks: none is a step on one core; allowed: at least one with cores = "one"')
    with gate_folder() as folder:
        setup = Setup(settings, lanes, folder / "base", folder / "slowed")
        for side in (setup.base, setup.slowed):
            repository.write_commit(commit, side)
        if not has_wrapper(setup.slowed):
            raise ValueError(f"--base: {base!r} has no wrapper to inject a slowdown into; allowed: one that has")
        with (setup.slowed / "dpbench/parallel/__init__.py").open("a", encoding="utf-8") as file:
            file.write(INJECTED)
        trials = record(setup, results / f"gate/self-test-{socket.gethostname()}.jsonl", rounds, gates)
    result = result_of(trials, settings)
    path = results / f"gate/self-test-{result['environment']['hostname']}.json"
    replace_text(path, json.dumps(result, indent=1) + "\n")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instruments.gate_self_test")
    parser.add_argument("--base", default="HEAD")
    parser.add_argument("--rounds", type=int, choices=range(2, 10_001), default=60, metavar="2..10000")
    parser.add_argument("--gates", type=int, choices=range(10_001), default=10, metavar="0..10000")
    parser.add_argument("--results", type=Path, default=Path("results"))
    asked = parser.parse_args()
    print(heading("benchmarks.instruments.gate_self_test"), flush=True)
    try:
        result = self_test(asked.base, asked.rounds, asked.gates, asked.results)
    except (ReportedError, OSError, ValueError) as error:
        parser.exit(2, f"gate_self_test: {one_line(str(error))}\n")
    for tested in result["tested"]:
        whole = f"whole gates: {tested['whole']}, {tested['faster']} with a faster benchmark"
        print(f"{tested['condition']:24} drawn gates: {tested['drawn']}; {whole}")
    equal = [tested["drawn"] for tested in result["tested"] if not SLOWDOWNS[tested["condition"]]]
    least = max(clopper_pearson(drawn["slower"], sum(drawn.values()))[0] for drawn in equal)
    sys.exit(least > result["alarm_rate"])  # the lower end of the 95 % interval


if __name__ == "__main__":
    main()
