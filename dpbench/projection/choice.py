"""The sums of several variants on one machine, compared, and what to use. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dpbench.cases.variants import VariantId, VariantName
from dpbench.judge.estimate import Estimate
from dpbench.projection.step_sum import Fitted, Part, StepSum

_LEAST_LEAD = 1.01
"""A variant that may be less than one percent slower is a rival."""
_LEAST_PART = 0.005
"""A smaller share of the step is not worth a word."""
_TESTED = frozenset({Part.INPUT, Part.COMPUTE, Part.BESIDE, Part.OUTPUTS})
_TESTED_COPIES = frozenset({Part.WEIGHTS, Part.GRADIENTS})
"""These parts are tested for `ddp`, and for `torch_dp` on at most `_TESTED_LANES` devices."""
_TESTED_LANES = 4
_ROUNDING = 1e-6
_GIB = 2.0**30
_WHOLE = 100


@dataclass(frozen=True)
class ProjectedRow:
    """`speed_up` is over one device that does its share alone."""

    variant: VariantId
    sum: StepSum
    step_time_s: Estimate
    speed_up: Estimate


@dataclass(frozen=True)
class MachineProjection:
    """`reasons` say why other variants have no row; `notes`, what the machine's file or the counts leave open."""

    machine: str
    workload: str
    batch: int
    math: str
    rows: Sequence[ProjectedRow]
    reasons: Mapping[VariantId, str]
    advice: str
    notes: tuple[str, ...] = ()


def rows_of(
    sums: Mapping[VariantId, StepSum], single: StepSum, fitted: Fitted, *, knows_one: bool
) -> list[ProjectedRow]:
    """`knows_one` is whether the step of one device was measured."""
    error = fitted.ratio_error if knows_one else fitted.step_error
    return [
        ProjectedRow(
            variant,
            step_sum,
            _around(step_sum.step_s, error),
            _around(
                step_sum.devices * single.step_s / step_sum.step_s, fitted.error_of_ratio(int(step_sum.devices > 1))
            ),
        )
        for variant, step_sum in sums.items()
    ]


def _around(mid: float, factor: float) -> Estimate:
    return Estimate(mid, mid / factor, mid * factor)


def ratio_of(one: StepSum, other: StepSum, fitted: Fitted) -> Estimate:
    """The step time of `one` over that of `other`. The speed of one device cancels."""
    return _around(one.step_s / other.step_s, fitted.error_of_ratio(sum(step.devices > 1 for step in (one, other))))


def words_of(step: StepSum) -> str:
    """A text such as ``computation 97 ms + exposed gradients 3 ms; the host needs 20 ms``."""
    shown = {part: seconds for part, seconds in step.parts.items() if seconds >= _LEAST_PART * step.step_s}
    text = " + ".join(f"{part} {milliseconds(seconds)}" for part, seconds in shown.items())
    if step.bound_by is Part.LOADER:
        return f"the loader needs {milliseconds(step.loader_s)}; {text}"
    if step.bound_by is Part.HOST:
        return f"the host needs {milliseconds(step.host_s)}; {text}"
    return f"{text}; the host needs {milliseconds(step.host_s)}"


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms" if seconds < 1 else f"{1e3 * seconds:.0f} ms"


def rests_on(slower: ProjectedRow, faster: ProjectedRow) -> Part | None:
    """Return the part without which the order would not hold, if no published step tests it."""
    untested = {part: -seconds for part, seconds in _untested(faster.variant, faster.sum).items()}
    for part, seconds in _untested(slower.variant, slower.sum).items():
        untested[part] = untested.get(part, 0.0) + seconds
    gap = slower.sum.step_s - faster.sum.step_s
    if not untested or gap - sum(untested.values()) > _ROUNDING * slower.sum.step_s:
        return None
    return max(untested, key=lambda part: untested[part])


def _untested(variant: VariantId, step: StepSum) -> dict[Part, float]:
    """No published row is bound by its host."""
    if step.bound_by is Part.HOST:
        return {Part.HOST: step.host_s}
    has_rows = variant.name in (VariantName.SINGLE, VariantName.DDP)
    has_rows |= variant.name is VariantName.TORCH_DP and step.devices <= _TESTED_LANES
    tested = _TESTED | (_TESTED_COPIES if has_rows else frozenset())
    return {part: seconds for part, seconds in step.parts.items() if part not in tested}


def advice(rows: Sequence[ProjectedRow], machine: str, fitted: Fitted, twice: float | None = None) -> str:
    """Return the variant to use, how sure that is, and the parts of its step.

    `twice` is by what factor the best variant's step is longer with twice the batch.
    """
    several = [row for row in rows if row.variant.name is not VariantName.SINGLE]
    fitting = sorted((row for row in several if row.sum.fits is not False), key=lambda row: row.sum.step_s)
    if not fitting:
        reason = "fits into memory; take a smaller batch" if several else "could be projected"
        return f"On {machine} no scheme for several devices {reason}."
    best, *other_rows = fitting
    rivals = [row for row in other_rows if ratio_of(row.sum, best.sum, fitted).ends[0] <= _LEAST_LEAD]
    *names, last = (str(row.variant) for row in (best, *rivals))
    undecided = f"the best is not decided between {', '.join(names)} and {last}: {best.variant} has"
    head = undecided if rivals else f"use {best.variant}:"
    text = f"On {machine} {head} {_rate(best.sum.batch / best.sum.step_s)} items a second"
    text += f"; its step takes {_times(_inverse(best.speed_up, best.sum.devices))} that of one device with its share"
    if other_rows:
        text += f" and {_times(ratio_of(best.sum, other_rows[0].sum, fitted))} that of {other_rows[0].variant}"
        if (part := rests_on(other_rows[0], best)) is not None:
            text += f"; this order rests on the {part}, which no published step tests"
    text += f"; {words_of(best.sum)}"
    if twice is not None:
        text += f"; with twice the batch a step takes {twice:.2f} times as long"
    return text + "."


def memory_notes(rows: Sequence[ProjectedRow]) -> list[str]:
    """A line for each variant whose step does not fit into memory."""
    return [
        f"{row.variant} does not fit: a device needs {row.sum.memory_bytes / _GIB:.1f} GiB of "
        f"{row.sum.device_memory_bytes / _GIB:.1f} GiB"
        for row in rows
        if row.sum.fits is False and row.sum.memory_bytes is not None
    ]


def _inverse(speed_up: Estimate, devices: int) -> Estimate:
    low, high = speed_up.ends
    return Estimate(devices / speed_up.value, devices / high, devices / low)


def _times(ratio: Estimate) -> str:
    return f"{ratio.value:.2f} times ({ratio.low:.2f} to {ratio.high:.2f})"


def _rate(per_s: float) -> str:
    return f"{per_s:,.0f}" if per_s >= _WHOLE else f"{per_s:.3g}"
