"""From records to a comparison of the variants in each setting, and which of them is the fastest. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from math import ceil, log

from dpbench.analysis.summary import Summary, summarise_cases
from dpbench.cases.case import Case, on_one_device, single_device_baseline
from dpbench.cases.devices import are_shared
from dpbench.cases.plan import Skip
from dpbench.cases.variants import VariantId, VariantName
from dpbench.errors import WrongInputError
from dpbench.records.record import Environment, Outcome, Record
from dpbench.stats.rounds import Estimate

LIMITS = (VariantName.SINGLE, VariantName.FLOOR)
"""They show what is possible; they are not schemes to use on several devices."""
MOST_ROUNDS = 200


class UnlikeEnvironmentsError(WrongInputError):
    """One line with the fields in which the records' environments differ, and the values.

    It is also raised if a throttled record would be compared with an unthrottled one.
    """


@dataclass(frozen=True)
class Row:
    """A case among the others of its setting. What does not apply is None.

    `ratio` is the step time over that of variant `reference`; above 1 is slower. `percent` is the single-device
    baseline's time over this one: of a limit, or of one device's speed if lanes share a device (`is_shared`).
    """

    summary: Summary
    reference: VariantId | None = None
    ratio: Estimate | None = None
    percent: float | None = None
    is_shared: bool = False

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
    """The fastest scheme.

    `slower` has the time of every other scheme over the winner's, in order of time. A scheme is a rival if the
    interval of that ratio contains 1, or if there is no interval because a scheme has one round only. `alone` is the
    winner's time over that of one device with the whole batch, None if that was not measured.
    """

    best: Summary
    slower: Mapping[VariantId, Estimate]
    alone: Estimate | None = None

    @property
    def rivals(self) -> tuple[VariantId, ...]:
        return tuple(variant for variant, ratio in self.slower.items() if not ratio.is_above_one)

    @property
    def is_slower_than_one_device(self) -> bool:
        """Whether one device is faster than every scheme, for sure."""
        return self.alone is not None and self.alone.is_above_one


@dataclass(frozen=True)
class Comparison:
    """The rows of one setting in the order of `VariantId.order`.

    `setting` is any of its cases. If `single` was measured with the whole batch on one device, it is a row too.
    `reference` is the variant that ratios are to, None if no candidate or only one case has times.
    """

    setting: Case
    rows: tuple[Row, ...]
    reference: VariantId | None

    @property
    def is_shared(self) -> bool:
        """Whether lanes share a device. Then percentages are of one device's speed, not of a limit."""
        return are_shared(self.setting.lanes_of_a_machine)

    @cached_property
    def fastest_first(self) -> list[Row]:
        """The rows with times."""
        return sorted((row for row in self.rows if row.summary.step_times_s), key=lambda row: row.summary.time_s)

    @cached_property
    def winner(self) -> Winner | None:
        """The scheme with the shortest step, or None if no scheme has times that can be ranked."""
        ranked = [row.summary for row in self.fastest_first if not row.summary.thin_rounds]
        schemes = [each for each in ranked if each.case.variant.name not in LIMITS]
        if not schemes:
            return None
        best = schemes[0]
        slower = {each.case.variant: each.ratio_to(best) for each in schemes[1:]}
        single = next((each for each in ranked if each.case.variant.name is VariantName.SINGLE), None)
        return Winner(best, slower, best.ratio_to(single) if single else None)


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

    @property
    def cases(self) -> list[Row]:
        """A row for each case.

        `single` is in several comparisons if their first lanes are equal. Its ratio and percentage are then None.
        """
        rows: dict[Case, Row] = {}
        for row in (row for comparison in self.comparisons for row in comparison.rows):
            rows[row.summary.case] = row if row.summary.case not in rows else Row(row.summary)
        return [*rows.values(), *map(Row, self.single_device_baselines)]


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
    records = list(records)
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
    throttled = _throttled(records, comparisons)
    if throttled is not None:
        if not allow_different:
            raise UnlikeEnvironmentsError(f"{throttled}; allowed: records that are alike in this")
        different["throttled"] = (False, True)
    rows = {row.summary.case for comparison in comparisons for row in comparison.rows}
    single_device_baselines = tuple(summary for case, summary in summaries.items() if case not in rows)
    return Comparisons(comparisons, single_device_baselines, environments[0] if environments else None, different)


def differences(environments: Sequence[Environment]) -> dict[str, tuple[object, ...]]:
    """Return the fields that are not equal in all, with their values in order of appearance."""
    values = {
        name: tuple(dict.fromkeys(getattr(environment, name) for environment in environments))
        for name in Environment.model_fields
    }
    return {name: different for name, different in values.items() if len(different) > 1}


def rounds_to_decide(ratio: Estimate, rounds: int) -> int | None:
    """Return about how many rounds would put 1 outside of the interval.

    None if the ratio is so near to 1 that over 200 would be needed, or if it has no interval. The interval's length
    falls with the square root of the rounds.
    """
    if ratio.low is None or ratio.high is None or ratio.value <= 1:
        return None
    half = log(ratio.high / ratio.low) / 2
    needed = max(ceil(rounds * (half / log(ratio.value)) ** 2), rounds + 1)
    return needed if needed <= MOST_ROUNDS else None


def _throttled(records: Iterable[Record], comparisons: Iterable[Comparison]) -> str | None:
    """Return a line on a throttled record that is compared with an unthrottled one; None without such a pair.

    Their times differ because of the GPUs' clocks. Records without throttling data are in no pair.
    """
    firsts: dict[Case, dict[bool, Record]] = {}
    for record in records:
        if record.metrics is not None and record.metrics.is_throttled is not None:
            firsts.setdefault(record.case, {}).setdefault(record.metrics.is_throttled, record)
    for comparison in comparisons:
        cases = [*(row.summary.case for row in comparison.rows), single_device_baseline(comparison.setting)]
        known = [firsts[case] for case in cases if case in firsts]
        hot, cool = (next((each[state] for each in known if state in each), None) for state in (True, False))
        if hot and cool:
            names = [f"{record.case.id} (round {record.round})" for record in (hot, cool)]
            return f"throttled: {names[0]} was held back by its GPUs' clocks and {names[1]} was not"
    return None


def _summaries(records: Iterable[Record], skipped: Iterable[Skip]) -> dict[Case, Summary]:
    """Return the summaries sorted by setting and variant, whatever the order of the records."""
    summaries = {skip.case: Summary(skip.case, Outcome.SKIPPED, skip.reason) for skip in skipped}
    summaries |= summarise_cases(records)
    return {case: summaries[case] for case in sorted(summaries, key=_sort_key)}


def _sort_key(case: Case) -> tuple[object, ...]:
    place = (case.workload, case.mode, case.dtype, case.data, len(case.devices), case.devices, case.batch)
    return (*place, case.threads, case.seed, case.steps_per_sample, case.machines, case.variant.order)


def _settings(cases: Iterable[Case]) -> list[Case]:
    """Return one case of each setting that has rows of its own.

    A setting of `single` alone has none if another setting holds that case, as a row or as its baseline.
    """
    cases = list(cases)
    parallel = [case for case in cases if case.variant.name is not VariantName.SINGLE]
    in_others = {single for case in parallel for single in (on_one_device(case), single_device_baseline(case))}
    own = [case for case in cases if case.variant.name is not VariantName.SINGLE or case not in in_others]
    return [next(group) for _, group in groupby(own, key=lambda case: case.setting)]


def _comparison(
    setting: Case, own: Sequence[Case], summaries: Mapping[Case, Summary], candidates: Sequence[VariantId]
) -> Comparison:
    """Return the comparison of a setting, whose cases are `own`."""
    cases = sorted({on_one_device(setting), *own}, key=lambda case: case.variant.order)
    present = [summaries[case] for case in cases if case in summaries]
    timed = {summary.case.variant: summary for summary in present if summary.step_times_s}
    reference = next((timed[name] for name in candidates if name in timed and len(timed) > 1), None)
    baseline = summaries.get(single_device_baseline(setting))
    is_shared = are_shared(setting.lanes_of_a_machine)
    rows = tuple(_row(summary, reference, baseline, is_shared=is_shared) for summary in present)
    return Comparison(setting, rows, reference.case.variant if reference else None)


def _preferred(variant: VariantId) -> tuple[bool, tuple[int, str]]:
    """Return the key that sorts the variants which ratios may be to: the stock schemes first."""
    return variant.name not in (VariantName.TORCH_DP, VariantName.NAIVE), variant.order


def _row(summary: Summary, reference: Summary | None, baseline: Summary | None, *, is_shared: bool) -> Row:
    if not summary.step_times_s:
        return Row(summary)
    percent = 100 * baseline.time_s / summary.time_s if baseline is not None and baseline.step_times_s else None
    if reference is None:
        return Row(summary, percent=percent, is_shared=is_shared)
    return Row(summary, reference.case.variant, summary.ratio_to(reference), percent, is_shared)
