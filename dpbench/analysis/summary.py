"""The summary of all rounds of one case."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from dpbench.analysis.device_summary import DeviceSummary, summarise_devices
from dpbench.analysis.over_rounds import OverRounds, over_values
from dpbench.analysis.phase_summary import PhaseSummary, summarise_phases
from dpbench.cases.case import Case
from dpbench.judge.estimate import Estimate, median_of_rounds, ratio_of_rounds
from dpbench.records.record import Metrics, Outcome, Record


@dataclass(frozen=True)
class Loss:
    """Medians over rounds. Compare `last` with care: rounds take different numbers of steps."""

    first: float
    last: float


@dataclass(frozen=True)
class Summary:
    """`outcome` is wrong_result if any round was, else ok if any was; only ok has times. `step_times_s` and `metrics`
    are of the `rounds_ok`. A case with `thin_rounds`, of fewer than the least samples, is not ranked. `reason` also
    names failed rounds beside them.

    `devices`, `phases` and `peak_rss_bytes` are computed when read: a page of many records reads few.
    """

    case: Case
    outcome: Outcome
    reason: str | None = None
    rounds: int = 0
    step_times_s: tuple[tuple[float, ...], ...] = ()
    step_time_s: Estimate | None = None
    loss: Loss | None = None
    metrics: tuple[Metrics, ...] = ()
    thin_rounds: int = 0

    @cached_property
    def devices(self) -> tuple[DeviceSummary, ...]:
        return summarise_devices(self.metrics)

    @cached_property
    def phases(self) -> PhaseSummary:
        longest_s = None if self.step_time_s is None else self.step_time_s.high or max(map(max, self.step_times_s))
        return summarise_phases(self.metrics, self.case.steps_per_sample, self.case.machines, longest_s)

    @property
    def agreeing_phases(self) -> PhaseSummary:
        """Empty if a phase is longer than the step, because they explain nothing then."""
        return PhaseSummary({}) if self.phases.disagreeing else self.phases

    @cached_property
    def peak_rss_bytes(self) -> OverRounds | None:
        peaks = [float(one.peak_rss_bytes) for one in self.metrics if one.peak_rss_bytes is not None]
        return over_values(peaks) if peaks else None

    @property
    def compile_s(self) -> float | None:
        """Of the round that compiled longest: later ones find the code in Inductor's cache."""
        return max((one.compile_s for one in self.metrics if one.compile_s is not None), default=None)

    @property
    def skipped_steps(self) -> str | None:
        """Of all rounds, such as ``3 of 512``; None without a scaled loss."""
        rounds = [one.skipped_steps for one in self.metrics if one.skipped_steps is not None]
        if not rounds:
            return None
        return f"{sum(one.skipped for one in rounds):,} of {sum(one.steps for one in rounds):,}"

    @property
    def time_s(self) -> float:
        assert self.step_time_s is not None
        return self.step_time_s.value

    @property
    def rounds_ok(self) -> int:
        return len(self.step_times_s)

    @property
    def items_per_s(self) -> float | None:
        return None if self.step_time_s is None else self.case.batch / self.step_time_s.value

    @property
    def ended(self) -> str:
        return self.outcome.replace("_", " ")

    def ratio_to(self, reference: "Summary") -> Estimate:
        """Of the step times; the reference's own is 1 without an interval."""
        if self is reference:
            return Estimate(1.0, None, None)
        return ratio_of_rounds(self.step_times_s, reference.step_times_s)


def summarise_cases(records: Iterable[Record]) -> dict[Case, Summary]:
    """A record that was read twice counts once."""
    by_case: dict[Case, dict[tuple[str, int], Record]] = {}
    for record in records:
        by_case.setdefault(record.case, {})[record.run, record.round] = record
    return {case: summarise(list(rounds.values())) for case, rounds in by_case.items()}


def summarise(records: Sequence[Record]) -> Summary:
    case, rounds = records[0].case, len(records)
    failed = [record for record in records if record.outcome is not Outcome.OK]
    wrong = [record for record in failed if record.outcome is Outcome.WRONG_RESULT]
    if wrong:
        return Summary(case, Outcome.WRONG_RESULT, f"not the same computation: {_reasons(wrong)}", rounds)
    done = [record for record in records if record.outcome is Outcome.OK]
    if not done:
        return Summary(case, failed[0].outcome, _reasons(failed), rounds)
    step_times_s = tuple(record.step_times_s for record in done)
    reason = f"{len(failed)} of {rounds} rounds failed: {_reasons(failed, named=True)}" if failed else None
    metrics = [record.metrics for record in done if record.metrics is not None]
    return Summary(
        case,
        Outcome.OK,
        reason,
        rounds,
        step_times_s,
        median_of_rounds(step_times_s),
        _loss(metrics),
        tuple(metrics),
        sum(not record.has_enough_samples for record in done),
    )


def _loss(metrics: Sequence[Metrics]) -> Loss | None:
    first = [m.loss_first for m in metrics if m.loss_first is not None]
    last = [m.loss_last for m in metrics if m.loss_last is not None]
    return Loss(median(first), median(last)) if first and last else None


def _reasons(records: Sequence[Record], *, named: bool = False) -> str:
    """Each reason once, with outcomes if `named`, or if they differ."""
    named = named or len({record.outcome for record in records}) > 1
    texts = [f"{record.outcome}: {record.reason}" if named else str(record.reason) for record in records]
    return "; ".join(dict.fromkeys(texts))
