"""Predictions beside measured steps: errors, totals, and the order of variants. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from statistics import median
from typing import Any

from benchmarks.projection.predict import Prediction
from benchmarks.projection.row_file import Table
from dpbench.projection.project import Interval
from dpbench.projection.ranking import ratio_of

DDP, DP = "ddp", "torch_dp"


@dataclass(frozen=True)
class Outcome:
    """A case in plain numbers. Times are of a step, in ms.

    `predicted` has the factor of the case's own model. `by_first` has that of its table's first model on such devices,
    and `alone` none. `shrunk` is the share of draws that one factor could not calibrate. `why_not` says why no claim
    counts the case.
    """

    table: str
    model: str
    variant: str
    machine: str
    devices: int
    why_not: str | None
    factor: str | None
    factor_mid: float | None
    shrunk: float
    one_device: float | None
    one_device_alone: Interval
    predicted: Interval
    by_first: float
    alone: Interval
    perfect: float
    naive: float
    bound_by: str
    not_affine: tuple[str, ...]
    measured: float | None

    def scaling_error(self) -> float:
        """Return the predicted over the measured speed-up for each device, less 1. The case must be measured."""
        assert self.measured is not None
        return self.measured / self.predicted.mid - 1

    def step_error(self, predicted: float) -> float:
        """Return the predicted over the measured step, less 1. The case must be measured."""
        assert self.measured is not None
        return predicted / self.measured - 1


@dataclass(frozen=True)
class Total:
    """The absolute errors of some cases: median and worst, as shares. `aim` bounds the worst."""

    name: str
    cases: int
    median: float
    worst: float
    aim: float | None

    @property
    def is_missed(self) -> bool:
        return self.aim is not None and self.worst > self.aim


@dataclass(frozen=True)
class Order:
    """Two variants of one table on as many devices: the ratio of their steps, predicted and measured."""

    table: str
    one: str
    other: str
    predicted: Interval
    measured: float | None

    @property
    def is_claimed(self) -> bool:
        return self.predicted.low > 1 or self.predicted.high < 1

    @property
    def is_right(self) -> bool:
        return self.measured is not None and (self.predicted.mid > 1) == (self.measured > 1)


def outcome_of(name: str, table: Table, found: Prediction) -> Outcome:
    """Return the numbers of a prediction. `name` is the table's."""
    calibration, series, case = found.calibration, found.series, found.case
    part, share = found.found.bound_by[0]
    return Outcome(
        table=name,
        model=series.model,
        variant=case.variant,
        machine=case.machine,
        devices=found.devices,
        why_not=table.why_not_claimed(series, case),
        factor=None if calibration is None else calibration.factor,
        factor_mid=None if calibration is None else calibration.mid,
        shrunk=0.0 if calibration is None else calibration.shrunk,
        one_device=series.one_device_ms,
        one_device_alone=_ms(found.one_device.step_time_s),
        predicted=_ms(found.found.step_time_s),
        by_first=found.by_first.step_time_s.mid * 1e3,
        alone=_ms(found.alone.step_time_s),
        perfect=found.perfect_s * 1e3,
        naive=found.naive_s * 1e3,
        bound_by=f"{part} {share:.0%}",
        not_affine=found.not_affine,
        measured=case.measured_ms,
    )


def _ms(seconds: Interval) -> Interval:
    return Interval(seconds.low * 1e3, seconds.mid * 1e3, seconds.high * 1e3)


def orders_of(name: str, table: Table, predictions: Sequence[Prediction]) -> list[Order]:
    """Return the pairs of claimable cases with one model and equally many devices."""
    found = []
    for one, other in combinations(predictions, 2):
        same = one.series is other.series and one.devices == other.devices
        if same and not any(table.why_not_claimed(each.series, each.case) for each in (one, other)):
            times = one.case.measured_ms, other.case.measured_ms
            measured = times[0] / times[1] if times[0] is not None and times[1] is not None else None
            labels = [f"{each.case.variant} on {each.case.machine}" for each in (one, other)]
            found.append(Order(name, labels[0], labels[1], ratio_of(one.found, other.found), measured))
    return found


def totals_of(outcomes: Sequence[Outcome]) -> list[Total]:
    """Return the errors of the measured cases that are claimed, against the aims."""
    ddp, dp = (claimed(outcomes, variant) for variant in (DDP, DP))
    rows: list[tuple[str, list[Outcome], Callable[[Outcome], float], float | None]] = [
        ("DDP, scaling", ddp, Outcome.scaling_error, 0.07),
        ("DDP, step", ddp, lambda each: each.step_error(each.by_first), 0.20),
        ("DP, step", dp, lambda each: each.step_error(each.predicted.mid), 0.25),
        ("DDP, step, no factor", ddp, lambda each: each.step_error(each.alone.mid), None),
        ("DP, step, no factor", dp, lambda each: each.step_error(each.alone.mid), None),
        ("DDP, step, if scaling were perfect", ddp, lambda each: each.step_error(each.perfect), None),
        ("DDP, step, one device plus bytes over bandwidth", ddp, lambda each: each.step_error(each.naive), None),
        ("DP, step, if scaling were perfect", dp, lambda each: each.step_error(each.perfect), None),
        ("DP, step, one device plus bytes over bandwidth", dp, lambda each: each.step_error(each.naive), None),
    ]
    found = []
    for name, cases, error, aim in rows:
        errors = [abs(error(each)) for each in cases]
        if errors:
            found.append(Total(name, len(errors), median(errors), max(errors), aim))
    return found


def coverages_of(outcomes: Sequence[Outcome]) -> list[tuple[str, int, int]]:
    """Return of the claimed cases what is counted, how many are inside their interval, and how many there are."""
    found = []
    for name, variant in (("DDP", DDP), ("DP", DP)):
        cases = claimed(outcomes, variant)
        found.append((name, [is_inside(each.predicted, each.measured) for each in cases]))
        found.append((f"{name}, no factor", [is_inside(each.alone, each.measured) for each in cases]))
    single = [is_inside(each.one_device_alone, each.one_device) for each in models_of(claimed(outcomes))]
    return [(name, sum(each), len(each)) for name, each in (*found, ("one device, no factor", single)) if each]


def claimed(outcomes: Iterable[Outcome], *variants: str) -> list[Outcome]:
    """Return the measured cases that a claim counts: of all variants, or of these."""
    return [
        each
        for each in outcomes
        if each.why_not is None and each.measured is not None and each.variant in (variants or (DDP, DP))
    ]


def models_of(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Return the first case of each model of a table whose step on one device is published."""
    found: dict[tuple[str, str], Outcome] = {}
    for each in outcomes:
        if each.one_device is not None:
            found.setdefault((each.table, each.model), each)
    return list(found.values())


def is_inside(interval: Interval, published: float | None) -> bool:
    return published is not None and interval.low <= published <= interval.high


def as_json(outcomes: Sequence[Outcome]) -> list[Mapping[str, Any]]:
    """Return the predictions without what was measured, to 5 digits."""
    return [{key: _rounded(value) for key, value in asdict(each).items() if key != "measured"} for each in outcomes]


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return float(f"{value:.5g}") if isinstance(value, float) else list(value) if isinstance(value, tuple) else value
