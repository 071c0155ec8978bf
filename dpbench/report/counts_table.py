"""Exact counts as tables, variants side by side, and as JSON."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from dpbench.analysis.compare import Row
from dpbench.analysis.summary import Summary
from dpbench.cases.case import Case
from dpbench.cases.plan import Skip
from dpbench.cases.variants import VariantId, VariantName
from dpbench.records.counts import CountRecord, Counts, Phase, PhaseCounts, Traffic
from dpbench.records.record import Outcome
from dpbench.report.comparison import SCHEMA, case_json
from dpbench.report.table import Column, Table
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
Value = int | float | None
"""A count (int), a share from 0 to 1 (float), or None if it was not counted."""


def counts_text(records: Iterable[CountRecord], skipped: Iterable[Skip] = (), *, differing: bool = False) -> Group:
    """Return a table for each workload, batch and number of lanes; with `differing`, without rows of equal counts.

    Below it are the cases that were not counted, and at the end a legend.
    """
    parts: list[RenderableType] = []
    records = list(records)
    for setting, group in groupby(sorted(records, key=_sort_key), key=lambda record: _setting(record.case)):
        found = list(group)
        parts.append(_table(setting, found, differing=differing))
        parts += [Text(f"{r.case.id}: {r.why}") for r in found if r.outcome is not Outcome.OK]
        parts.append(Text())
    has_nccl = any(record.counts is not None and record.counts.nccl_links is not None for record in records)
    reasons = dict.fromkeys(f"{skip.case.variant}: {skip.reason}" for skip in skipped)
    return Group(*parts, *map(Text, reasons), Text(_LEGEND + (_NCCL if has_nccl else ""), style="dim"))


def _sort_key(record: CountRecord) -> tuple[object, ...]:
    case = record.case
    return case.workload, case.batch, len(case.devices), case.variant.order


def _setting(case: Case) -> str:
    return f"{case.workload}, batch {case.batch} on {len(case.devices)} lanes, {case.mode}, {case.dtype}"


def _table(title: str, records: Sequence[CountRecord], *, differing: bool) -> Table:
    """Return the table. Counts on simulated devices and on CPU lanes share a variant's column."""
    columns: dict[VariantId, list[Counts]] = {}
    for record in records:
        columns.setdefault(record.case.variant, []).extend([record.counts] if record.counts else [])
    rows = {}
    for name, read in _ROWS.items():
        values = {
            variant: next((value for counts in found if (value := read(counts)) is not None), None)
            for variant, found in columns.items()
        }
        if differing and len({value for value in values.values() if value is not None}) == 1:
            continue
        if any(value or isinstance(value, float) for value in values.values()):
            rows[name] = dict(_cells(values))
    by_variant = [Column(variant, partial(_of_variant, rows, variant)) for variant in columns]
    return Table(title, [Column("counter", str), *by_variant], list(rows))


def _of_variant(rows: Mapping[str, Mapping[VariantId, str | None]], variant: VariantId, name: str) -> str | None:
    return rows[name][variant]


def _cells(values: Mapping[VariantId, Value]) -> Iterator[tuple[VariantId, str | None]]:
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


def _total(read: Callable[[PhaseCounts], int | None]) -> Callable[[Counts], Value]:
    """Return a function that sums a number over all phases."""

    def total(counts: Counts) -> Value:
        found = [value for phase in counts.phases.values() if (value := read(phase)) is not None]
        return sum(found) if found else None

    return total


def _of_phase(phase: Phase) -> Callable[[Counts], Value]:
    return lambda counts: counts.phases[phase].operators if phase in counts.phases else None


def _links(fits: Callable[[str], bool], field: str) -> Callable[[Counts], Value]:
    return _total(lambda phase: _sum(phase.copies, fits, field))


def _sum(traffic: Mapping[str, Traffic] | None, fits: Callable[[str], bool], field: str) -> int | None:
    return None if traffic is None else sum(getattr(found, field) for name, found in traffic.items() if fits(name))


def _host_call(name: str) -> Callable[[Counts], Value]:
    return _total(lambda phase: None if phase.host_calls is None else phase.host_calls[name])


def _between_devices(link: str) -> bool:
    return "host" not in link


def _from_host(link: str) -> bool:
    return link.startswith("host->")


def _to_host(link: str) -> bool:
    return link.endswith("->host")


def _source(link: str) -> str:
    return link.partition("->")[0]


def _destination(link: str) -> str:
    return link.partition("->")[2]


def _busiest(end: Callable[[str], str]) -> Callable[[Counts], Value]:
    """Return a function that sums the bytes between devices over a step by `end` of their link, and takes the most."""

    def most(counts: Counts) -> Value:
        copies = [phase.copies for phase in counts.phases.values() if phase.copies is not None]
        sent = [(name, traffic.size_bytes) for copy in copies for name, traffic in copy.items()]
        return _most(sent, end) if copies else None

    return most


def _busiest_with_nccl(end: Callable[[str], str]) -> Callable[[Counts], Value]:
    return lambda counts: None if counts.nccl_links is None else _most(counts.nccl_links.items(), end)


def _most(sent: Iterable[tuple[str, int]], end: Callable[[str], str]) -> int:
    sums: Counter[str] = Counter()
    for name, size_bytes in sent:
        if _between_devices(name):
            sums[end(name)] += size_bytes
    return max(sums.values(), default=0)


def _peak(counts: Counts) -> Value:
    return max((peak for phase in counts.phases.values() for peak in (phase.peak_bytes or {}).values()), default=None)


def _share(part: str, whole: str) -> Callable[[Counts], Value]:
    def share(counts: Counts) -> Value:
        total = getattr(counts.dependencies, whole, None)
        return float(getattr(counts.dependencies, part) / total) if total else None

    return share


_ROWS: dict[str, Callable[[Counts], Value]] = {
    "operators": _total(lambda phase: phase.operators),
    **{f"  {phase}": _of_phase(phase) for phase in Phase},
    "kernels": _total(lambda phase: phase.kernels),
    "FLOPs": _total(lambda phase: phase.flops),
    "copies between devices": _links(_between_devices, "count"),
    "  bytes": _links(_between_devices, "size_bytes"),
    "  bytes out of the busiest device": _busiest(_source),
    "    with NCCL, out": _busiest_with_nccl(_source),
    "  bytes into the busiest device": _busiest(_destination),
    "    with NCCL, in": _busiest_with_nccl(_destination),
    "  bytes of the busiest link": _busiest(str),
    "    with NCCL, link": _busiest_with_nccl(str),
    "copies from the host": _links(_from_host, "count"),
    "  bytes from it": _links(_from_host, "size_bytes"),
    "copies to the host": _links(_to_host, "count"),
    "  bytes to it": _links(_to_host, "size_bytes"),
    "collectives": _total(lambda phase: _sum(phase.collectives, bool, "count")),
    "  bytes each rank": _total(lambda phase: _sum(phase.collectives, bool, "size_bytes")),
    "events recorded": _host_call("event_record"),
    "waits of streams": _host_call("stream_wait"),
    "stream switches": _host_call("stream_switch"),
    "stream lookups": _host_call("stream_lookup"),
    "record_stream calls": _host_call("record_stream"),
    "hand-overs by autograd": _host_call("engine_handover"),
    "waits of the host": _host_call("host_wait"),
    "allocations": _total(lambda phase: phase.allocations),
    "peak bytes": _peak,
    "Python calls": _total(lambda phase: phase.python_calls),
    "early parameters": _share("before_first_layer_bytes", "broadcast_bytes"),
    "gradients ready at half": _share("ready_at_half_bytes", "reduced_bytes"),
    "gradients free at half": _share("startable_at_half_bytes", "reduced_bytes"),
}


def counts_json(records: Sequence[CountRecord], skipped: Iterable[Skip] = ()) -> dict[str, Any]:
    """Return the object of `comparisons_json`, with `counts` in each case and no times."""
    environment = next((record.environment for record in records if record.environment), None)
    cases = [_case(r.case, r.outcome, r.reason, r.counts) for r in records]
    cases += [_case(skip.case, Outcome.SKIPPED, skip.reason, None) for skip in skipped]
    return {
        "schema": SCHEMA,
        "environment": None if environment is None else environment.model_dump(mode="json"),
        "cases": cases,
    }


def _case(case: Case, outcome: Outcome, reason: str | None, counts: Counts | None) -> dict[str, Any]:
    fields = case_json(Row(Summary(case, outcome, reason)))
    return fields | {"counts": None if counts is None else counts.model_dump(mode="json")}
