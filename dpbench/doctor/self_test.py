"""Two equal cases compared by the runner itself: whatever differs is the machine's noise."""
# MERGED-DOC results.noise: """What two equal cases, measured side by side, tell of a machine. Pure."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from random import Random

import numpy as np

from dpbench.doctor.findings import Finding, note, ok, unreliable
from dpbench.results.record import Outcome, Record
from dpbench.run.launch import launch
from dpbench.run.runner import Launcher, Progress, run
from dpbench.stats.rounds import Estimate, Rounds, log_medians, ratio_of_rounds
from dpbench.stats.student import t95_from_table
from dpbench.sweep.case import Case
from dpbench.sweep.machine_info import MachineInfo
from dpbench.sweep.plan import default_lanes
from dpbench.sweep.variants import VariantName

_Z90 = 1.2816  # nine in ten changes of the size told are found


@dataclass(frozen=True)
class Noise:
    """`spread` is the standard deviation of the medians of rounds, `detectable` the smallest slowdown that a comparison
    of as many rounds finds nine times in ten: that its 95 % interval excludes no change. Both are shares, 0.01 is 1 %.
    """

    ratio: Estimate
    spread: float
    detectable: float
    rounds: int

    @property
    def looks_unequal(self) -> bool:
        """What happens one time in twenty on a sound machine."""
        return self.ratio.low is not None and self.ratio.high is not None and not self.ratio.low <= 1 <= self.ratio.high


def noise_of(first: Rounds, second: Rounds) -> Noise:
    """From rounds of the same case, taken in turn, equally many and at least two of each."""
    rounds = len(first)
    if rounds < 2 or len(second) != rounds:
        raise ValueError(f"noise needs as many rounds of both, two or more; there are {rounds} and {len(second)}")
    variances = [float(np.var(log_medians(each), ddof=1)) for each in (first, second)]
    spread = float(np.sqrt(np.mean(variances)))
    error = spread * np.sqrt(2 / rounds)
    detectable = float(np.expm1((t95_from_table(2 * rounds - 2) + _Z90) * error))
    return Noise(ratio_of_rounds(first, second), float(np.expm1(spread)), detectable, rounds)


SECONDS = 60.0
_CHILD_SAMPLING_S = 1.0
_CHILD_TIMEOUT_S = 60.0
_LEAST_PAIRS, _MOST_PAIRS = 3, 20
_SEED = 0

SOME_PERCENT, MANY_PERCENT = 5.0, 20.0
"""Below the first a regression gate works as designed; beyond the second a comparison tells little."""


def self_test(
    machine: MachineInfo,
    *,
    seconds: float = SECONDS,
    launch: Launcher = launch,
    progress: Callable[[Progress], object] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> list[Finding]:
    """As many pairs of rounds as `seconds` have room for, at least three; the order within a pair is by lot."""
    records: list[Record] = []
    begin_s = clock()
    for pair in _pairs(twin(machine)):
        left_s = seconds - (clock() - begin_s)
        if len(records) >= 2 * _LEAST_PAIRS and left_s < (seconds - left_s) / len(records) * 2:
            break  # no room for one more as long as those so far
        run(
            pair,
            run_id="doctor",
            records=records,
            budget_s=math.inf,
            case_time_s=_CHILD_SAMPLING_S,
            timeout_s=_CHILD_TIMEOUT_S,
            launch=launch,
            progress=partial(_tell, progress, len(records), max(left_s, 0.0)),
        )
        if any(record.outcome is not Outcome.OK for record in records[-2:]):
            break
    return findings_of(records)


def _tell(progress: Callable[[Progress], object], before: int, left_s: float, now: Progress) -> None:
    """Of a pair as if it were the last: how many more there will be shows as time alone."""
    progress(replace(now, done=before + now.done, total=before + now.total, seconds_left=left_s))


def twin(machine: MachineInfo) -> Case:
    """One device alone, as what is told of the machine should depend on no scheme."""
    device = default_lanes(machine)[:1]
    return Case(variant=VariantName.SINGLE, workload="mlp/small", batch=64, devices=device, threads=machine.cores)


def _pairs(case: Case) -> Iterator[list[tuple[int, Case]]]:
    """Even rounds are the one case, odd ones the other."""
    rng = Random(_SEED)
    for number in range(_MOST_PAIRS):
        pair = [(2 * number, case), (2 * number + 1, case)]
        rng.shuffle(pair)
        yield pair


def findings_of(records: list[Record]) -> list[Finding]:
    failed = next((record for record in records if record.outcome is not Outcome.OK), None)
    if failed is not None:
        reason = (failed.reason or "").splitlines()[0]
        return [unreliable("self-test", f"{failed.outcome}: {reason}", "run `dpbench compare` for its last words")]
    rounds = {record.round: record.samples_s for record in records}
    one, other = ([rounds[number] for number in sorted(rounds) if number % 2 == half] for half in (0, 1))
    noise = noise_of(one, other)
    return [_equal(noise), _spread(noise), _detectable(noise)]


def _equal(noise: Noise) -> Finding:
    ratio = noise.ratio
    value = f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}], {noise.rounds} rounds of each"
    if noise.looks_unequal:
        return note("ratio of equal cases", value, "1 is outside, as one time in twenty by chance: examine again")
    return ok("ratio of equal cases", value)


def _spread(noise: Noise) -> Finding:
    value = f"{noise.spread:.1%} (standard deviation of the medians of rounds, one device alone; lanes add to it)"
    return ok("noise between processes", value)


def _detectable(noise: Noise) -> Finding:
    what, percent = "smallest change seen in 1 minute", 100 * noise.detectable
    value = f"{percent:.1f} % (nine times in ten, {noise.rounds} rounds of each)"
    if percent > MANY_PERCENT:
        return unreliable(what, value, "quieten the machine, or take many more rounds")
    return note(what, value, "take more rounds for smaller ones") if percent > SOME_PERCENT else ok(what, value)
