"""Exact counts as tables and as JSON: of a step, variants side by side; of what a script's ranks send, by line."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python
from rich.console import Group, RenderableType
from rich.text import Text

from dpbench.analysis.communication import Communication
from dpbench.analysis.compare_variants import ComparedCase
from dpbench.analysis.counted import Value, figures_of
from dpbench.analysis.summary import Summary
from dpbench.cases.case import Case
from dpbench.cases.plan import Skip
from dpbench.cases.variants import VariantId, VariantName
from dpbench.records.count_record import CountRecord
from dpbench.records.record import Outcome
from dpbench.records.script_record import WARM_UP, Issue, Issues, ScriptJob
from dpbench.report.case_columns import CASE_COLUMNS
from dpbench.report.comparison import SCHEMA
from dpbench.report.table import Column, Table, json_of
from dpbench.text.outside import by_reason
from dpbench.text.quantities import number

_REFERENCES = tuple(map(VariantId, (VariantName.TORCH_DP, VariantName.NAIVE)))
_LEGEND = (
    "Exact counts of the third step, all devices together. Ratios are to torch_dp, the stock wrapper. Python calls "
    "are counted on CPU lanes only, and their ratio is to naive. Busiest: by its bytes to and from other devices in "
    "the step; a link is one direction. Peak: of the fullest device. Early parameters: the share of a lane's "
    "parameters that must arrive before its first layer starts. Ready at half: the share of gradient bytes that all "
    "lanes have when half of each lane's backward is over. Free at half: those that no stream or wait holds back."
)
_NCCL = " With NCCL: what torch_dp sends where torch has NCCL."


def counts_text(records: Iterable[CountRecord], skipped: Iterable[Skip] = (), *, differing: bool = False) -> Group:
    """A table for each workload, batch, number of lanes and dtype; with `differing`, without rows of equal counts.

    Below it are the cases that were not counted, and at the end a legend. A table without rows is left out.
    """
    parts: list[RenderableType] = []
    records = list(records)
    for setting, group in groupby(sorted(records, key=_sort_key), key=lambda record: _setting(record.case)):
        table = _table(setting, list(group), differing=differing)
        parts += [table, Text()] if table.rows or not differing else []
    has_nccl = any(record.counts is not None and record.counts.nccl_links is not None for record in records)
    failed = [(record.case.id, record.why) for record in records if record.outcome is not Outcome.OK]
    reasons = by_reason([*failed, *((skip.case.variant, skip.reason) for skip in skipped)])
    legend = [Text(_LEGEND + (_NCCL if has_nccl else ""), style="dim")] if parts else []
    return Group(*parts, *map(Text, reasons), *legend)


def _sort_key(record: CountRecord) -> tuple[object, ...]:
    case = record.case
    return case.workload, case.batch, len(case.devices), case.dtype, case.variant.order


def _setting(case: Case) -> str:
    return f"{case.workload}, batch {case.batch} on {len(case.devices)} lanes, {case.mode}, {case.dtype}"


def _table(title: str, records: Sequence[CountRecord], *, differing: bool) -> Table:
    """Counts on simulated devices and on CPU lanes share a variant's column."""
    columns: dict[VariantId, dict[str, Value]] = {}
    for record in records:
        of_variant = columns.setdefault(record.case.variant, {})
        figures = figures_of(record.counts).items() if record.counts else ()
        of_variant |= {name: value for name, value in figures if of_variant.get(name) is None}
    rows: list[dict[str, str | None]] = []
    for name in dict.fromkeys(name for of_variant in columns.values() for name in of_variant):
        values = {variant: of_variant.get(name) for variant, of_variant in columns.items()}
        if differing and len({value for value in values.values() if value is not None}) == 1:
            continue
        if any(value or isinstance(value, float) for value in values.values()):
            rows.append({"": name, **dict(_cells(values))})
    by_variant = [Column(variant, itemgetter(variant)) for variant in columns]
    return Table(title, [Column("counter", itemgetter("")), *by_variant], rows)


def _cells(values: Mapping[VariantId, Value]) -> Iterator[tuple[str, str | None]]:
    reference = next((name for name in _REFERENCES if values.get(name)), None)
    for variant, value in values.items():
        if value is None:
            yield variant, None
        elif isinstance(value, float):
            yield variant, f"{value:.0%}"
        elif not value or reference is None or variant == reference:
            yield variant, f"{value:,}"
        else:
            base = values[reference] or 1
            yield variant, f"{value:,} ({1 if value == base else number(value / base)})"


def counts_json(records: Sequence[CountRecord], skipped: Iterable[Skip] = ()) -> dict[str, Any]:
    """The object of `comparisons_json`, with `counts` in each case and no times."""
    counted = [(Summary(record.case, record.outcome, record.reason), record.counts) for record in records]
    counted += [(Summary(skip.case, Outcome.SKIPPED, skip.reason), None) for skip in skipped]
    return {
        "schema": SCHEMA,
        "environment": to_jsonable_python(next((record.environment for record in records if record.environment), None)),
        "cases": [
            json_of(CASE_COLUMNS, ComparedCase(summary)) | {"counts": to_jsonable_python(counts)}
            for summary, counts in counted
        ],
    }


_SCRIPT_LEGEND = (
    "Exact counts. Bytes: the payload of one collective. Unaligned: a payload whose size is no multiple of 16 bytes, "
    "which is slow. Exposed: the rank computes nothing between the issue and the moment when it needs the result. "
    "A collective counts once for all ranks; send and recv count in each. A step ends with an optimizer's step."
)
_MOST_NUMBERS = 5


def script_text(job: ScriptJob, sent: Communication) -> Group:
    parts: list[RenderableType] = [
        *_issues_table("Before the first forward", sent.setup),
        *_issues_table("Each step", sent.step),
        Text(f"{_total(sent)}\n"),
        *_issues_table(f"Beyond that, in steps {_numbers(sent)} together", sent.seldom),
        *_issues_table(f"Missing, in steps {_numbers(sent)} together", sent.less),
        *(Text(f"the ranks differ: {line}") for line in sent.differences[:_MOST_NUMBERS]),
    ]
    return Group(Text(f"{job.script}, {job.ranks} ranks\n"), *parts, Text(_SCRIPT_LEGEND, style="dim"))


def script_json(job: ScriptJob, sent: Communication) -> dict[str, Any]:
    fields = sent.model_dump(mode="json")
    return {
        "schema": SCHEMA,
        **job.model_dump(mode="json", exclude={"folder", "steps"}),
        "counters": sent.by_name(),
    } | fields


def _issues_table(title: str, issues: Issues) -> Iterator[RenderableType]:
    if issues:
        yield Table(title, _ISSUE_COLUMNS, list(issues))


def _total(sent: Communication) -> str:
    count, exposed = (sum(i.count for i in sent.step if i.is_exposed >= least) for least in (False, True))
    size = sum(issue.count * issue.size_bytes for issue in sent.step)
    of = f"{sent.steps - len(sent.differing):,} of {sent.steps:,} steps after the first {WARM_UP}"
    return f"{of}: {count:,} collectives, {exposed:,} exposed, {size:,} bytes"


def _numbers(sent: Communication) -> str:
    more = ", ..." if len(sent.differing) > _MOST_NUMBERS else ""
    return ", ".join(map(str, sent.differing[:_MOST_NUMBERS])) + more


def _marks(issue: Issue) -> str | None:
    return ", ".join([*["exposed"] * issue.is_exposed, *["unaligned"] * issue.is_unaligned]) or None


_ISSUE_COLUMNS = [
    Column("phase", lambda issue: issue.part.value, is_text=True),
    Column("collective", lambda issue: issue.kind, is_text=True),
    Column("count", lambda issue: f"{issue.count:,}"),
    Column("bytes", lambda issue: f"{issue.size_bytes:,}"),
    Column("dtype", lambda issue: issue.dtypes or None, is_text=True),
    Column("is", _marks, is_text=True),
    Column("line", lambda issue: f"{Path(issue.place.file).name}:{issue.place.line}", is_text=True),
]
