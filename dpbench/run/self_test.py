"""Two equal cases compared by the runner itself: whatever differs is the box's noise."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from random import Random

from dpbench.results.finding import Finding, note, ok, unreliable
from dpbench.results.noise import Noise, noise_of
from dpbench.results.record import Outcome, Record
from dpbench.run.launch import launch
from dpbench.run.runner import Launcher, Progress, run
from dpbench.sweep.box import Box
from dpbench.sweep.case import Case
from dpbench.sweep.names import VariantName
from dpbench.sweep.plan import default_lanes

SECONDS = 60.0
_CHILD_SAMPLING_S = 1.0
_CHILD_TIMEOUT_S = 60.0
_LEAST_PAIRS, _MOST_PAIRS = 3, 20
_SEED = 0

SOME_PERCENT, MANY_PERCENT = 5.0, 20.0
"""Below the first a regression gate works as designed; beyond the second a comparison tells little."""


def self_test(
    box: Box,
    *,
    seconds: float = SECONDS,
    launch: Launcher = launch,
    progress: Callable[[Progress], object] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> list[Finding]:
    """As many pairs of rounds as `seconds` have room for, at least three; the order within a pair is by lot."""
    records: list[Record] = []
    begin_s = clock()
    for pair in _pairs(twin(box)):
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


def twin(box: Box) -> Case:
    """One device alone, as what is told of the box should depend on no scheme."""
    device = default_lanes(box)[:1]
    return Case(variant=VariantName.SINGLE, workload="mlp/small", batch=64, devices=device, threads=box.cores)


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
        return unreliable(what, value, "quieten the box, or take many more rounds")
    return note(what, value, "take more rounds for smaller ones") if percent > SOME_PERCENT else ok(what, value)
