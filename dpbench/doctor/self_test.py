"""The self-test: measure one case as if it were two, even and odd rounds, and report the difference as noise."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from random import Random

import numpy as np

from dpbench.cases.case import Case
from dpbench.cases.machine_info import MachineInfo
from dpbench.cases.plan import default_lanes
from dpbench.cases.variants import VariantName
from dpbench.doctor.findings import Finding, note_if, unreliable
from dpbench.jobs.round import JobRunner, RoundProcesses
from dpbench.jobs.sweep import Progress, run
from dpbench.judge.decision import Verdict
from dpbench.judge.estimate import Estimate, Rounds, log_medians, ratio_of_rounds, t95_from_table
from dpbench.records.record import Outcome, Record

SECONDS = 60.0
_CHILD_SAMPLING_S = 1.0
_CHILD_TIMEOUT_S = 60.0
_LEAST_PAIRS = 3
_MOST_PAIRS = 20
_SEED = 0

SOME_PERCENT = 5.0
"""A gate works as designed if `detectable` is at most this."""
MANY_PERCENT = 20.0
"""A comparison shows little if `detectable` is above this."""

_Z90 = 1.2816  # the 90 % quantile of a normal value: a slowdown of `detectable` is found with this power


@dataclass(frozen=True)
class Noise:
    """Shares: 0.01 is 1 %. `ratio` is first over second, `spread` the standard deviation of the rounds' medians.

    `detectable` is the smallest slowdown that `rounds` rounds find nine times in ten, by an interval without 1.
    """

    ratio: Estimate
    spread: float
    detectable: float
    rounds: int

    @property
    def looks_unequal(self) -> bool:
        """By chance one time in twenty."""
        return self.ratio.verdict in (Verdict.SLOWER, Verdict.FASTER)


def noise_of(first: Rounds, second: Rounds) -> Noise:
    """Raises ValueError if the sets differ in length or have fewer than two rounds."""
    rounds = len(first)
    if rounds < 2 or len(second) != rounds:
        raise ValueError(f"noise needs two or more rounds, equally many of each; there are {rounds} and {len(second)}")
    variances = [float(np.var(log_medians(half), ddof=1)) for half in (first, second)]
    spread = float(np.sqrt(np.mean(variances)))
    error = spread * np.sqrt(2 / rounds)
    detectable = float(np.expm1((t95_from_table(2 * rounds - 2) + _Z90) * error))
    return Noise(ratio_of_rounds(first, second), float(np.expm1(spread)), detectable, rounds)


def self_test(
    machine: MachineInfo,
    *,
    seconds: float = SECONDS,
    runner: JobRunner | None = None,
    progress: Callable[[Progress], object] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> list[Finding]:
    """Measure three pairs of rounds or more, for `seconds`; a failed round ends the test, and is the only finding."""

    def report(before: int, now: Progress) -> None:
        elapsed_s, done, least = clock() - begin_s, before + now.done, 2 * _LEAST_PAIRS
        round_s = elapsed_s / max(done, 1)  # only the time is known, so the number of rounds is estimated
        rounds = max(least, done, round(seconds / round_s) if round_s else 0)
        left_s = max(seconds - elapsed_s, (least - done) * round_s, 0.0)
        progress(replace(now, done=done, total=rounds, rounds_done=done, rounds=rounds, seconds_left=left_s))

    records: list[Record] = []
    begin_s, runner = clock(), runner or RoundProcesses()
    for pair in _pairs(self_test_case(machine)):
        left_s = seconds - (clock() - begin_s)
        if len(records) >= 2 * _LEAST_PAIRS and left_s < (seconds - left_s) / len(records) * 2:
            break  # another pair of average length would not fit
        run(
            pair,
            run_id="doctor",
            records=records,
            budget_s=math.inf,
            case_time_s=_CHILD_SAMPLING_S,
            timeout_s=_CHILD_TIMEOUT_S,
            launch=runner.launch,
            progress=partial(report, len(records)),
        )
        runner.end_round()
        if any(record.outcome is not Outcome.OK for record in records[-2:]):
            break
    return findings_of(records)


def self_test_case(machine: MachineInfo) -> Case:
    """One device alone, so that the noise depends on no scheme."""
    device = default_lanes(machine)[:1]
    return Case(variant=VariantName.SINGLE, workload="mlp/small", batch=64, devices=device, threads=machine.cores)


def _pairs(case: Case) -> Iterator[list[tuple[int, Case]]]:
    rng = Random(_SEED)
    for number in range(_MOST_PAIRS):
        pair = [(2 * number, case), (2 * number + 1, case)]
        rng.shuffle(pair)
        yield pair


def findings_of(records: list[Record]) -> list[Finding]:
    failed = next((record for record in records if record.outcome is not Outcome.OK), None)
    if failed is not None:
        reason = (failed.reason or "").splitlines()[0]
        return [unreliable("self-test", f"{failed.outcome}: {reason}", "run `dpbench compare` to see its last output")]
    rounds = {record.round: record.step_times_s for record in records}
    one, other = ([rounds[number] for number in sorted(rounds) if number % 2 == half] for half in (0, 1))
    noise = noise_of(one, other)
    ratio = noise.ratio
    equal = f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}], {noise.rounds} rounds of each"
    chance = "1 is outside the interval, as happens one time in twenty by chance: examine again"
    spread = f"{noise.spread:.1%} (standard deviation of the rounds' medians on one device; several lanes add to it)"
    seen = f"{100 * noise.detectable:.1f} % (nine times in ten, {noise.rounds} rounds of each)"
    return [
        note_if(noise.looks_unequal, "ratio of equal cases", equal, chance),
        _judged("noise between processes", spread, noise),
        _judged("smallest change seen in 1 minute", seen, noise),
    ]


def _judged(what: str, value: str, noise: Noise) -> Finding:
    """The smallest change judges: what is too much noise depends on the rounds."""
    seen, percent = "the smallest change seen is over", 100 * noise.detectable
    if percent > MANY_PERCENT:
        advice = "a comparison shows little: stop other work on the machine, or take many more rounds"
        return unreliable(what, value, f"{seen} {MANY_PERCENT:g} %, so {advice}")
    return note_if(percent > SOME_PERCENT, what, value, f"{seen} {SOME_PERCENT:g} %, so a gate needs more rounds")
