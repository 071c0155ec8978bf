"""How often the 95 % interval of the ratio of two equal cases contains 1.

    python -m benchmarks.interval_coverage --rounds 60

It measures one case in many rounds, each in a fresh process. Then it repeatedly draws five rounds as the first case
and five others as the second. It draws them from the whole run, or from ten successive rounds, as a comparison
measures them. For contrast it also treats every sample as a round.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from benchmarks.about import heading
from dpbench.results.record import Outcome, Record
from dpbench.results.run_path import new_run_path
from dpbench.results.store import Store
from dpbench.run.run_sweep import machine_for, run_sweep
from dpbench.stats.rounds import Rounds, ratio_of_rounds
from dpbench.sweep.plan import Plan, plan
from dpbench.sweep.spec import from_options

_HUNDREDS = 20
Draw = Callable[[Random, Sequence[Sequence[float]], int], tuple[Rounds, Rounds]]


def main() -> None:
    options = _options()
    print(heading("benchmarks.interval_coverage"))
    records = Store(options.records).read().records if options.records else measured(options)
    samples_s = [record.step_times_s for record in records if record.outcome is Outcome.OK]
    case = records[0].case
    print(f"{len(samples_s)} rounds of {case.id}, {min(map(len, samples_s))} samples or more in each")
    for name, draw in (("any rounds", _any), ("ten successive rounds", _successive), ("every sample a round", _pooled)):
        hits = [covered(draw, Random(number), samples_s, options.of) for number in range(_HUNDREDS)]
        print(
            f"1 is inside, of 100 comparisons of {options.of} and {options.of} rounds, {name:20}: "
            f"{sum(hits) / len(hits):5.1f} (over {_HUNDREDS} hundreds: {min(hits)} to {max(hits)})"
        )


def measured(options: argparse.Namespace) -> Sequence[Record]:
    """Measure the case, and return its records."""
    spec = from_options(
        {
            "variants": options.variant,
            "workloads": "mlp/small",
            "batch": "64",
            "devices": "cpu" if options.variant == "single" else "cpu*2",
            "rounds": str(options.rounds),
            "case_time": "0.5",
        }
    )
    cases = plan(spec, machine_for(spec))
    wanted = [case for case in cases.cases if case.variant == options.variant]
    store = Store(new_run_path(options.results, "coverage"))
    found = run_sweep(spec, Plan(tuple(wanted), ()), store, lambda _: None)
    return found.records


def covered(draw: Draw, rng: Random, samples_s: Sequence[Sequence[float]], of: int) -> int:
    """Return how many of 100 intervals contain 1."""
    hits = 0
    for _ in range(100):
        ratio = ratio_of_rounds(*draw(rng, samples_s, of))
        assert ratio.low is not None
        assert ratio.high is not None
        hits += ratio.low <= 1 <= ratio.high
    return hits


def _any(rng: Random, samples_s: Sequence[Sequence[float]], of: int) -> tuple[Rounds, Rounds]:
    drawn = rng.sample(samples_s, 2 * of)
    return drawn[:of], drawn[of:]


def _successive(rng: Random, samples_s: Sequence[Sequence[float]], of: int) -> tuple[Rounds, Rounds]:
    """Draw successive rounds in pairs, in random order, as the runner measures two cases."""
    start = rng.randrange(len(samples_s) - 2 * of + 1)
    pairs = [samples_s[i : i + 2] for i in range(start, start + 2 * of, 2)]
    shuffled = [rng.sample(pair, 2) for pair in pairs]
    return [pair[0] for pair in shuffled], [pair[1] for pair in shuffled]


def _pooled(rng: Random, samples_s: Sequence[Sequence[float]], of: int) -> tuple[Rounds, Rounds]:
    one, other = _any(rng, samples_s, of)
    return [[s] for samples in one for s in samples], [[s] for samples in other for s in samples]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.interval_coverage")
    parser.add_argument("--variant", default="single")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--of", type=int, default=5, help="rounds of each case in a comparison")
    parser.add_argument("--records", type=Path, help="use the rounds in this file; measure nothing")
    parser.add_argument("--results", type=Path, default=Path("results/runs"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
