"""From records to comparisons of the variants in each setting, and the fastest."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

from dpbench.analysis.summary import Summary, summarise_cases
from dpbench.cases.case import Case, on_one_device, single_device_baseline
from dpbench.cases.names import are_shared
from dpbench.cases.plan import Skip
from dpbench.cases.variants import VariantId, VariantName
from dpbench.errors import WrongInputError
from dpbench.judge.decision import Verdict
from dpbench.judge.estimate import Estimate
from dpbench.records.record import Environment, Outcome, Record, differences

LIMITS = (VariantName.SINGLE, VariantName.FLOOR)
"""They show what is possible, and are no schemes to use."""


@dataclass(frozen=True)
class ComparedCase:
    """`ratio` is the step time over that of `reference`. `percent` is the time of `baseline`, the fastest single-device
    baseline, over this one: of a limit, or of one device's speed if `is_shared`. None is what does not apply.
    """

    summary: Summary
    reference: VariantId | None = None
    ratio: Estimate | None = None
    percent: float | None = None
    is_shared: bool = False
    baseline: VariantId | None = None

    @property
    def percent_of_limit(self) -> float | None:
        return None if self.is_shared else self.percent

    @property
    def percent_of_single(self) -> float | None:
        return self.percent if self.is_shared else None

    @property
    def ideal_items_per_s(self) -> float | None:
        """The throughput at 100 percent."""
        items = self.summary.items_per_s
        return None if items is None or self.percent is None else items / (self.percent / 100)


@dataclass(frozen=True)
class Winner:
    """`slower` has the other schemes' times over the winner's, in order of time. A rival's interval contains 1 or is
    missing. `single` is the fastest on one device with the whole batch.
    """

    best: Summary
    slower: Mapping[VariantId, Estimate]
    single: Summary | None = None

    @cached_property
    def alone(self) -> Estimate | None:
        """The winner's time over that of `single`."""
        return None if self.single is None else self.best.ratio_to(self.single)

    @property
    def rivals(self) -> tuple[VariantId, ...]:
        return tuple(variant for variant, ratio in self.slower.items() if ratio.verdict is not Verdict.SLOWER)

    @property
    def is_slower_than_one_device(self) -> bool:
        return self.alone is not None and self.alone.verdict is Verdict.SLOWER


@dataclass(frozen=True)
class Comparison:
    """`setting` is any of its cases. `single` with the whole batch is a row too, if measured. `reference` is None if no
    candidate or only one case has times.
    """

    setting: Case
    rows: tuple[ComparedCase, ...]
    reference: VariantId | None

    @property
    def is_shared(self) -> bool:
        """Whether percentages are of one device's speed, not of a limit."""
        return are_shared(self.setting.lanes_of_a_machine)

    @cached_property
    def fastest_first(self) -> list[ComparedCase]:
        return sorted((row for row in self.rows if row.summary.step_times_s), key=lambda row: row.summary.time_s)

    @cached_property
    def winner(self) -> Winner | None:
        ranked = [row.summary for row in self.fastest_first if not row.summary.thin_rounds]
        schemes = [summary for summary in ranked if summary.case.variant.name not in LIMITS]
        if not schemes:
            return None
        best = schemes[0]
        slower = {summary.case.variant: summary.ratio_to(best) for summary in schemes[1:]}
        single = next((summary for summary in ranked if summary.case.variant.name is VariantName.SINGLE), None)
        return Winner(best, slower, single)


@dataclass(frozen=True)
class Comparisons:
    """`single_device_baselines` are `single` cases for percentages that are no row. `differences` were allowed: fields
    of the environment, and ``throttled``, with their values.
    """

    comparisons: tuple[Comparison, ...]
    single_device_baselines: tuple[Summary, ...]
    environment: Environment | None
    differences: Mapping[str, tuple[object, ...]]

    @property
    def cases(self) -> list[ComparedCase]:
        """A row for each case; `single` in several comparisons has no ratio and no percentage."""
        rows: dict[Case, ComparedCase] = {}
        for row in (row for comparison in self.comparisons for row in comparison.rows):
            rows[row.summary.case] = row if row.summary.case not in rows else ComparedCase(row.summary)
        return [*rows.values(), *map(ComparedCase, self.single_device_baselines)]


def check_environment(records: Sequence[Record]) -> None:
    """Raise WrongInputError if the records are of several environments."""
    if different := _differences(records):
        fields = ", ".join(f"{name} ({' / '.join(map(repr, values))})" for name, values in different.items())
        raise WrongInputError(
            f"environment: the records differ in {fields}; allowed: records of one environment, or --allow-different"
        )


def _differences(records: Sequence[Record]) -> dict[str, tuple[object, ...]]:
    return differences(list(dict.fromkeys(_environments(records))))


def _environments(records: Sequence[Record]) -> Iterator[Environment]:
    return (record.environment for record in records if record.environment)


def compare(
    records: Iterable[Record],
    skipped: Iterable[Skip] = (),
    *,
    reference: VariantId | None = None,
    allow_different: bool = False,
) -> Comparisons:
    """Without a `reference`, ratios are to the first of torch_dp, naive and other schemes that has times. Raise
    WrongInputError unless `allow_different`.
    """
    records = list(records)
    if not allow_different:
        check_environment(records)
    different = _differences(records)
    summaries = _summaries(records, skipped)
    of_setting: dict[str, list[Case]] = {}
    for case in summaries:
        of_setting.setdefault(case.setting, []).append(case)
    schemes = sorted({case.variant for case in summaries if case.variant.name not in LIMITS}, key=_preferred)
    candidates = schemes if reference is None else [reference]
    comparisons = tuple(_comparison(setting, of_setting, summaries, candidates) for setting in _settings(summaries))
    throttled = _throttled(records, comparisons)
    if throttled is not None:
        if not allow_different:
            raise WrongInputError(f"{throttled}; allowed: records that are alike in this")
        different["throttled"] = (False, True)
    rows = {row.summary.case for comparison in comparisons for row in comparison.rows}
    single_device_baselines = tuple(summary for case, summary in summaries.items() if case not in rows)
    return Comparisons(comparisons, single_device_baselines, next(_environments(records), None), different)


def _throttled(records: Iterable[Record], comparisons: Iterable[Comparison]) -> str | None:
    """A line on a throttled record beside an unthrottled one, if there are both."""
    firsts: dict[Case, dict[bool, Record]] = {}
    for record in records:
        if record.metrics is not None and record.metrics.is_throttled is not None:
            firsts.setdefault(record.case, {}).setdefault(record.metrics.is_throttled, record)
    for comparison in comparisons:
        cases = [*(row.summary.case for row in comparison.rows), single_device_baseline(comparison.setting)]
        known_states = [firsts[case] for case in cases if case in firsts]
        hot, cool = (
            next((by_state[state] for by_state in known_states if state in by_state), None) for state in (True, False)
        )
        if hot and cool:
            names = [f"{record.case.id} (round {record.round})" for record in (hot, cool)]
            return f"throttled: {names[0]} was held back by its GPUs' clocks and {names[1]} was not"
    return None


def _summaries(records: Iterable[Record], skipped: Iterable[Skip]) -> dict[Case, Summary]:
    summaries = {skip.case: Summary(skip.case, Outcome.SKIPPED, skip.reason) for skip in skipped}
    summaries |= summarise_cases(records)
    return {case: summaries[case] for case in sorted(summaries, key=_sort_key)}


def _sort_key(case: Case) -> tuple[object, ...]:
    place = (case.workload, case.mode, case.dtype, case.data, len(case.devices), case.devices, case.batch)
    return (*place, case.threads, case.seed, case.steps_per_sample, case.machines, case.variant.order)


def _settings(cases: Iterable[Case]) -> list[Case]:
    """One case of each setting; none of `single` alone if another setting holds it, as a row or as its baseline."""
    cases = list(cases)
    parallel = [case for case in cases if case.variant.name is not VariantName.SINGLE]
    in_others = {single.setting for case in parallel for single in (on_one_device(case), single_device_baseline(case))}
    own_cases = [case for case in cases if case.variant.name is not VariantName.SINGLE or case.setting not in in_others]
    return [next(group) for _, group in groupby(own_cases, key=lambda case: case.setting)]


def _comparison(
    setting: Case,
    of_setting: Mapping[str, Sequence[Case]],
    summaries: Mapping[Case, Summary],
    candidates: Sequence[VariantId],
) -> Comparison:
    def singles(case: Case) -> list[Case]:
        return [one for one in of_setting.get(case.setting, ()) if one.variant.name is VariantName.SINGLE]

    cases = {*singles(on_one_device(setting)), *of_setting[setting.setting]}
    present = [summaries[case] for case in sorted(cases, key=lambda case: case.variant.order)]
    timed = {summary.case.variant: summary for summary in present if summary.step_times_s}
    reference = next((timed[name] for name in candidates if name in timed and len(timed) > 1), None)
    baselines = [summaries[case] for case in singles(single_device_baseline(setting)) if summaries[case].step_times_s]
    baseline = min(baselines, key=lambda summary: summary.time_s, default=None)
    is_shared = are_shared(setting.lanes_of_a_machine)
    rows = tuple(_row(summary, reference, baseline, is_shared=is_shared) for summary in present)
    return Comparison(setting, rows, reference.case.variant if reference else None)


def _preferred(variant: VariantId) -> tuple[bool, tuple[int, str, str]]:
    """Stock schemes first."""
    return variant.name not in (VariantName.TORCH_DP, VariantName.NAIVE), variant.order


def _row(summary: Summary, reference: Summary | None, baseline: Summary | None, *, is_shared: bool) -> ComparedCase:
    if not summary.step_times_s:
        return ComparedCase(summary)
    row = ComparedCase(summary, is_shared=is_shared)
    if baseline is not None:
        row = replace(row, percent=100 * baseline.time_s / summary.time_s, baseline=baseline.case.variant)
    return (
        row if reference is None else replace(row, reference=reference.case.variant, ratio=summary.ratio_to(reference))
    )
