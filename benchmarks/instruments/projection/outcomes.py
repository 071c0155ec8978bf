"""Sums beside measured steps, each with the constants and errors of the other tables: errors and totals. Pure."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.instruments.projection.fit import DDP, Row, excess, with_errors
from dpbench.projection.step_sum import StepSum

DP = "torch_dp"


@dataclass(frozen=True)
class Outcome:
    """A case in plain numbers. Times are of a step, in ms.

    `predicted` has the published step of one device, and `alone` none; `ratio_error` and `step_error` are the factors
    of their intervals. `one_alone` is the step of one device without its published time.
    """

    row: Row
    predicted: float
    alone: float
    one_alone: float
    naive: float
    ratio_error: float
    step_error: float
    sum: StepSum

    @property
    def measured(self) -> float:
        return self.row.case.measured_ms or 0.0

    @property
    def is_inside(self) -> bool:
        return excess(self.predicted, self.measured) <= self.ratio_error

    @property
    def is_inside_alone(self) -> bool:
        return excess(self.alone, self.measured) <= self.step_error

    @property
    def is_one_inside(self) -> bool:
        return excess(self.one_alone, self.row.series.one_device_ms or 0.0) <= self.step_error

    def error(self, predicted: float) -> float:
        """Predicted over measured, less 1."""
        return predicted / self.measured - 1


@dataclass(frozen=True)
class Total:
    """Absolute errors as shares, and how many are inside their intervals."""

    name: str
    cases: int
    median: float
    worst: float
    inside: int | None


def outcomes_of(rows: Sequence[Row]) -> list[Outcome]:
    """The cases whose step of one device is published."""
    fits = {table: with_errors(rows, {table}) for table in dict.fromkeys(row.table for row in rows)}
    outcomes = []
    for row in rows:
        if row.one_s is not None:
            fitted = fits[row.table]
            made = row.sum(fitted)
            outcomes.append(
                Outcome(
                    row=row,
                    predicted=made.step_s * 1e3,
                    alone=row.sum(fitted, knows_one=False).step_s * 1e3,
                    one_alone=row.one_alone_s(fitted) * 1e3,
                    naive=row.naive_s() * 1e3,
                    ratio_error=fitted.ratio_error,
                    step_error=fitted.step_error,
                    sum=made,
                )
            )
    return outcomes


def claimed(outcomes: Sequence[Outcome], *variants: str) -> list[Outcome]:
    """The cases that a claim counts."""
    chosen = variants or (DDP, DP)
    return [outcome for outcome in outcomes if outcome.row.is_claimed and outcome.row.case.variant in chosen]


def models_of(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The first case of each model of a table on a kind of device."""
    firsts: dict[tuple[str, str], Outcome] = {}
    for outcome in outcomes:
        firsts.setdefault((outcome.row.table, outcome.row.series.model), outcome)
    return list(firsts.values())


def totals_of(outcomes: Sequence[Outcome]) -> Iterator[Total]:
    """Of the claimed cases: the sum, without one device's step, and the naive sum."""
    kinds: tuple[tuple[str, Callable[[Outcome], float], Callable[[Outcome], bool] | None], ...] = (
        ("the sum", lambda outcome: outcome.predicted, lambda outcome: outcome.is_inside),
        ("one device plus bytes over bandwidth", lambda outcome: outcome.naive, None),
        ("perfect scaling", lambda outcome: outcome.row.series.one_device_ms or 0.0, None),
        ("the sum, one device not known", lambda outcome: outcome.alone, lambda outcome: outcome.is_inside_alone),
    )
    for name, variant in (("DDP", DDP), ("DataParallel", DP)):
        cases = claimed(outcomes, variant)
        for kind, predicted, is_inside in kinds if cases else ():
            errors = [abs(outcome.error(predicted(outcome))) for outcome in cases]
            inside = None if is_inside is None else sum(map(is_inside, cases))
            yield Total(f"{name}: {kind}", len(cases), median(errors), max(errors), inside)
    if models := models_of(claimed(outcomes)):
        alone = [abs(outcome.one_alone / (outcome.row.series.one_device_ms or 0.0) - 1) for outcome in models]
        inside = sum(outcome.is_one_inside for outcome in models)
        yield Total("one device, not known", len(models), median(alone), max(alone), inside)
