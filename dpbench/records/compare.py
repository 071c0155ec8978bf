"""From records to a comparison of the variants in each setting. Pure.

Find throttled records that are compared with unthrottled ones.

Their times differ because of the GPUs' clocks, not because of the variants. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from dpbench.cases.case import Case, on_one_device, single_device_baseline
from dpbench.cases.devices import are_shared
from dpbench.cases.plan import Skip
from dpbench.cases.variants import VariantId, VariantName
from dpbench.errors import WrongInputError
from dpbench.records.record import Environment, Outcome, Record
from dpbench.records.summary import Summary, summarise
from dpbench.stats.rounds import Estimate, ratio_of_rounds

LIMITS = (VariantName.SINGLE, VariantName.FLOOR)
"""They show what is possible; they are not schemes to use on several devices."""


@dataclass(frozen=True)
class Throttling:
    """A throttled record, and an unthrottled record that is compared with it."""

    throttled: Record
    other: Record

    def __str__(self) -> str:
        return f"throttled: {_name(self.throttled)} was held back by its GPUs' clocks and {_name(self.other)} was not"


def find_throttling(records: Iterable[Record], groups: Iterable[Sequence[Case]]) -> Throttling | None:
    """Return the first such pair, or None. Cases of one group are compared with each other.

    Records without throttling data are in no pair.
    """
    firsts: dict[Case, dict[bool, Record]] = {}
    for record in records:
        is_throttled = None if record.metrics is None else record.metrics.is_throttled
        if is_throttled is not None:
            firsts.setdefault(record.case, {}).setdefault(is_throttled, record)
    return next(filter(None, (_pair(group, firsts) for group in groups)), None)


def _pair(cases: Sequence[Case], firsts: Mapping[Case, Mapping[bool, Record]]) -> Throttling | None:
    found = [firsts[case] for case in cases if case in firsts]
    throttled = next((each[True] for each in found if True in each), None)
    other = next((each[False] for each in found if False in each), None)
    return Throttling(throttled, other) if throttled and other else None


def _name(record: Record) -> str:
    return f"{record.case.id} (round {record.round})"


class UnlikeEnvironmentsError(WrongInputError):
    """One line with the fields in which the records' environments differ, and the values.

    It is also raised if a throttled record would be compared with an unthrottled one.
    """


@dataclass(frozen=True)
class Ratio:
    """The step time over that of variant `to`; above 1 is slower."""

    to: VariantId
    times: Estimate


@dataclass(frozen=True)
class Row:
    """A case among the others of its setting. What does not apply is None."""

    summary: Summary
    ratio: Ratio | None = None
    percent_of_limit: float | None = None
    percent_of_single: float | None = None


@dataclass(frozen=True)
class Comparison:
    """The rows of one setting in the order of `VariantId.order`.

    `setting` is any of its cases. If `single` was measured with the whole batch on one device, it is a row too.
    `reference` is the variant that ratios are to, None if no candidate or only one case has times.
    """

    setting: Case
    rows: tuple[Row, ...]
    reference: VariantId | None


@dataclass(frozen=True)
class Comparisons:
    """All comparisons of a set of records.

    `single_device_baselines` are `single` cases that percentages need and that are no row anywhere. `differences` are
    those that were allowed, with their values: fields of the environment, and ``throttled``.
    """

    comparisons: tuple[Comparison, ...]
    single_device_baselines: tuple[Summary, ...]
    environment: Environment | None
    differences: Mapping[str, tuple[object, ...]]


def compare(
    records: Iterable[Record],
    skipped: Iterable[Skip] = (),
    *,
    reference: VariantId | None = None,
    allow_different: bool = False,
) -> Comparisons:
    """Compare the records.

    Without a `reference`, ratios are to the first of torch_dp, naive and the other schemes that has times. Raise
    UnlikeEnvironmentsError if records differ in what must be equal. With `allow_different`, return the differences
    instead.
    """
    # If a file is read twice, its records still count once.
    records = list({(record.run, record.case, record.round): record for record in records}.values())
    environments = list(dict.fromkeys(record.environment for record in records if record.environment))
    different = differences(environments)
    if different and not allow_different:
        fields = ", ".join(f"{name} ({' / '.join(map(repr, values))})" for name, values in different.items())
        raise UnlikeEnvironmentsError(
            f"environment: the records differ in {fields}; allowed: records of one environment, or --allow-different"
        )
    summaries = _summaries(records, skipped)
    of_setting: dict[str, list[Case]] = {}
    for case in summaries:
        of_setting.setdefault(case.setting, []).append(case)
    schemes = sorted({case.variant for case in summaries if case.variant.name not in LIMITS}, key=_preferred)
    candidates = schemes if reference is None else [reference]
    comparisons = tuple(
        _comparison(setting, of_setting[setting.setting], summaries, candidates) for setting in _settings(summaries)
    )
    throttling = find_throttling(records, map(_cases, comparisons))
    if throttling is not None:
        if not allow_different:
            raise UnlikeEnvironmentsError(f"{throttling}; allowed: records that are alike in this")
        different["throttled"] = (False, True)
    rows = {row.summary.case for comparison in comparisons for row in comparison.rows}
    single_device_baselines = tuple(summary for case, summary in summaries.items() if case not in rows)
    return Comparisons(comparisons, single_device_baselines, environments[0] if environments else None, different)


def _cases(comparison: Comparison) -> list[Case]:
    """Return the cases whose times are compared with each other."""
    return [*(row.summary.case for row in comparison.rows), single_device_baseline(comparison.setting)]


def differences(environments: Sequence[Environment]) -> dict[str, tuple[object, ...]]:
    """Return the fields that are not equal in all, with their values in order of appearance."""
    values = {
        name: tuple(dict.fromkeys(getattr(environment, name) for environment in environments))
        for name in Environment.model_fields
    }
    return {name: found for name, found in values.items() if len(found) > 1}


def _summaries(records: Sequence[Record], skipped: Iterable[Skip]) -> dict[Case, Summary]:
    """Return the summaries sorted by setting and variant, whatever the order of the records."""
    by_case: dict[Case, list[Record]] = {}
    for record in records:
        by_case.setdefault(record.case, []).append(record)
    summaries = {skip.case: Summary(skip.case, Outcome.SKIPPED, skip.reason) for skip in skipped}
    summaries.update({case: summarise(found) for case, found in by_case.items()})
    return {case: summaries[case] for case in sorted(summaries, key=_sort_key)}


def _sort_key(case: Case) -> tuple[object, ...]:
    place = (case.workload, case.mode, case.dtype, case.data, len(case.devices), case.devices, case.batch)
    return (*place, case.threads, case.seed, case.steps_per_sample, case.machines, case.variant.order)


def _settings(summaries: Iterable[Case]) -> list[Case]:
    """Return one case of each setting that has rows of its own.

    A setting of `single` alone has none if another setting holds that case, as a row or as its baseline.
    """
    cases = list(summaries)
    parallel = [case for case in cases if case.variant.name is not VariantName.SINGLE]
    in_others = {single for case in parallel for single in (on_one_device(case), single_device_baseline(case))}
    own = [case for case in cases if case.variant.name is not VariantName.SINGLE or case not in in_others]
    return [next(group) for _, group in groupby(own, key=lambda case: case.setting)]


def _comparison(
    setting: Case, own: Sequence[Case], summaries: Mapping[Case, Summary], candidates: Sequence[VariantId]
) -> Comparison:
    """Return the comparison of a setting, whose cases are `own`."""
    cases = [on_one_device(setting), *own]
    present = [summaries[case] for case in sorted(set(cases), key=_sort_key_of_variant) if case in summaries]
    timed = {summary.case.variant: summary for summary in present if summary.step_time_s is not None}
    reference = next((timed[name] for name in candidates if name in timed and len(timed) > 1), None)
    baseline = summaries.get(single_device_baseline(setting))
    rows = tuple(
        _row(summary, reference, baseline, shared=are_shared(setting.lanes_of_a_machine)) for summary in present
    )
    return Comparison(setting, rows, reference.case.variant if reference else None)


def _preferred(variant: VariantId) -> tuple[bool, tuple[int, str]]:
    """Return the key that sorts the variants which ratios may be to: the stock schemes first."""
    return variant.name not in (VariantName.TORCH_DP, VariantName.NAIVE), variant.order


def _sort_key_of_variant(case: Case) -> tuple[int, str]:
    return case.variant.order


def _row(summary: Summary, reference: Summary | None, baseline: Summary | None, *, shared: bool) -> Row:
    percent = None
    if summary.step_time_s is not None and baseline is not None and baseline.step_time_s is not None:
        percent = 100 * baseline.step_time_s.value / summary.step_time_s.value
    ratio = None if summary.step_time_s is None or reference is None else _ratio(summary, reference)
    return Row(summary, ratio, None if shared else percent, percent if shared else None)


def _ratio(summary: Summary, reference: Summary) -> Ratio:
    """Return the ratio. That of the reference itself is 1 without an interval, because nothing is estimated."""
    if summary is reference:
        return Ratio(reference.case.variant, Estimate(1.0, None, None))
    return Ratio(reference.case.variant, ratio_of_rounds(summary.step_times_s, reference.step_times_s))
