"""How often the gate finds a slowdown of each size, drawn from the recorded rounds of a self-test.

    python -m benchmarks.gate_power [--trials results/gate/self-test-vm.jsonl] [--threshold 1.5%] [--gates 500]

`--threshold` replaces the tolerated growth of all benchmarks on one core. Nothing is measured. Benchmarks without
recorded rounds are left out. Before the gates come the standard deviations between the rounds of equal code.
`--gates 0` prints these alone.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import stdev

from benchmarks.about import heading
from dpbench.errors import GateError
from dpbench.gate.self_test.record import one_core
from dpbench.gate.self_test.result import Power, power_of
from dpbench.gate.self_test.trials import Condition, SelfTestTrial, read_trials
from dpbench.gate.settings import DEFAULT_BENCHMARKS, Benchmark, Settings, SettingsError, parse_share


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=Path, default=Path("results/gate/self-test-vm.jsonl"))
    parser.add_argument("--threshold")
    parser.add_argument("--gates", type=int, default=500)
    parser.add_argument("--budget", type=float, default=300.0)
    options = parser.parse_args()
    try:
        trials = read_trials(options.trials)
        recorded = {name for trial in trials for name in trial.rounds}
        benchmarks = _timed(recorded, None if options.threshold is None else parse_share(options.threshold))
    except (GateError, SettingsError, ValueError) as error:
        sys.exit(f"gate_power: {error}")
    if not benchmarks:
        sys.exit(f"gate_power: --trials: '{options.trials}' has no rounds; allowed: the trials of a self-test")
    print(heading("benchmarks.gate_power"))
    print("tolerated: " + ", ".join(f"{each.name} {each.threshold:.3g}" for each in benchmarks))
    for line in _spreads(trials):
        print(line)
    if options.gates:
        for power in power_of(trials, Settings(benchmarks=benchmarks), options.budget, options.gates):
            print(_line(power))


def _timed(recorded: set[str], threshold: float | None) -> tuple[Benchmark, ...]:
    found = [each for each in DEFAULT_BENCHMARKS if each.name in recorded]
    if threshold is None:
        return tuple(found)
    update = {"threshold": threshold}
    changed = {each.name for each in one_core(Settings(benchmarks=tuple(found)))}
    return tuple(each.model_copy(update=update) if each.name in changed else each for each in found)


def _spreads(trials: Sequence[SelfTestTrial]) -> Iterator[str]:
    for condition in (Condition.EQUAL, Condition.LOADED):
        of = [trial for trial in trials if trial.condition is condition and trial.rounds]
        for name in of[0].rounds if of else ():
            found = [trial.rounds[name] for trial in of]
            head, twin = (stdev(logs) for logs in zip(*((each.contrast, each.twin) for each in found), strict=True))
            yield f"{condition:24} {name:16} {len(of):3} rounds; spread {head:6.2%}, of base / base {twin:6.2%}"


def _line(power: Power) -> str:
    drawn = power.drawn
    return (
        f"{power.condition:24} slower by {power.growth:4.0%}: {drawn.slower / drawn.gates:6.1%} slower, "
        f"{drawn.undecided / drawn.gates:6.1%} undecided, {drawn.passed / drawn.gates:6.1%} pass, "
        f"median {power.median_s:.0f} s of {drawn.gates} gates"
    )


if __name__ == "__main__":
    main()
