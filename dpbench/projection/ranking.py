"""Projections of several variants on one machine, compared, and what to do. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dpbench.cases.variants import VariantId, VariantName
from dpbench.projection.project import QUANTILES, Interval, Projection
from dpbench.projection.replay.tasks import Role

_LEAST_COST = 0.01
_WHOLE = 100
_LEAST_LEAD = 1.01
"""A variant that may be less than one percent slower is a rival."""


@dataclass(frozen=True)
class ProjectedRow:
    """A variant on a machine: its projection, or the `reason` why there is none.

    `speed_up` is over one device that does its share alone.
    """

    variant: VariantId
    projection: Projection | None
    speed_up: Interval | None = None
    reason: str | None = None


@dataclass(frozen=True)
class MachineProjection:
    """All rows of a machine, and the advice. `notes` say what the machine's file or the recordings leave open."""

    machine: str
    workload: str
    batch: int
    math: str
    rows: Sequence[ProjectedRow]
    advice: str
    notes: tuple[str, ...] = ()


def with_speed_up(projections: Mapping[VariantId, Projection | str], single: Projection) -> tuple[ProjectedRow, ...]:
    """Return a row for each variant, in the given order. A text in place of a projection is the reason."""
    rows = []
    for variant, found in projections.items():
        if isinstance(found, str):
            rows.append(ProjectedRow(variant, None, reason=found))
        else:
            ratio = ratio_of(single, found)
            n = found.devices
            rows.append(ProjectedRow(variant, found, Interval(ratio.low * n, ratio.mid * n, ratio.high * n)))
    return tuple(rows)


def ratio_of(one: Projection, other: Projection) -> Interval:
    """Return the step time of `one` over that of `other`, with the interval of common draws and the model's error."""
    low, high = np.quantile(one.sample_s / other.sample_s, QUANTILES)
    fair = one.fair_ratio / other.fair_ratio
    mid = one.step_time_s.mid / other.step_time_s.mid
    schemes = sum(each.devices > 1 for each in (one, other))
    found = Interval(float(low * min(fair, 1)), mid, float(high * max(fair, 1)))
    return found.widened(one.model_error.of_ratio(schemes))


def advice(rows: Sequence[ProjectedRow], machine: str, larger_batch: float | None = None) -> str:
    """Return one sentence: the variant to use, how sure that is, and what limits it.

    `larger_batch` is by what factor more items a second the best variant has with twice the batch.
    """
    found = sorted(
        (row for row in rows if row.projection is not None and row.variant.name is not VariantName.SINGLE),
        key=lambda row: row.projection.step_time_s.mid / row.projection.batch if row.projection else 0.0,
    )
    if not found:
        return f"On {machine} no scheme for several devices could be projected."
    best = found[0]
    rivals = [row for row in found[1:] if not _is_slower(row, best)]
    assert best.projection is not None
    assert best.speed_up is not None
    found_s, batch = best.projection.step_time_s.mid, best.projection.batch
    gain = (
        f"{_rate(batch / found_s)} items a second, {best.speed_up.mid:.1f} times one device "
        f"({best.speed_up.low:.1f} to {best.speed_up.high:.1f})"
    )
    names = " and ".join(str(row.variant) for row in (best, *rivals))
    head = f"the best is not decided between {names}: {best.variant} has" if rivals else f"use {best.variant}:"
    share = best.speed_up.mid / best.projection.devices
    text = f"On {machine} {head} {gain}{_lead(found)}, {share:.0%} of the limit"
    costs = [f"{part:.0%} with {name}" for name, part in costs_of(best.projection)[:2]]
    text += f"; its step would be shorter by {' and by '.join(costs)}" if costs else ""
    if larger_batch is not None and larger_batch > 1.03:
        text += f"; twice the batch gives {larger_batch - 1:.0%} more items a second"
    return text + "."


def costs_of(projection: Projection) -> list[tuple[str, float]]:
    """Return by what share of the step it were shorter without links, host or uneven devices, largest first."""
    costs = {
        "links that cost nothing": projection.saved[Role.LINK],
        "a host that costs nothing": projection.saved[Role.HOST],
        "equally fast devices": projection.uneven,
    }
    return sorted(((name, cost) for name, cost in costs.items() if cost >= _LEAST_COST), key=lambda cost: -cost[1])


def _lead(projected_rows: Sequence[ProjectedRow]) -> str:
    if len(projected_rows) < 2 or projected_rows[0].projection is None or projected_rows[1].projection is None:
        return ""
    ratio = ratio_of(projected_rows[1].projection, projected_rows[0].projection)
    return (
        f", {ratio.mid - 1:.0%} faster than {projected_rows[1].variant} ({ratio.low - 1:.0%} to {ratio.high - 1:.0%})"
    )


def _rate(per_s: float) -> str:
    return f"{per_s:,.0f}" if per_s >= _WHOLE else f"{per_s:.3g}"


def _is_slower(row: ProjectedRow, best: ProjectedRow) -> bool:
    assert row.projection is not None
    assert best.projection is not None
    return ratio_of(row.projection, best.projection).low > _LEAST_LEAD
