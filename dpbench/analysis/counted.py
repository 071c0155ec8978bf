"""Exact counts as sums over phases, the busiest device and link, and shares."""

from collections import Counter
from collections.abc import Iterable, Mapping

from dpbench.records.count_record import Counts, Phase, Traffic

Value = int | float | None
"""A count (int), a share from 0 to 1 (float), or None if not counted."""
_Sums = Mapping[str, int] | None
_FIELDS = ("count", "size_bytes")
_CALLS = {
    "events recorded": "event_record",
    "waits of streams": "stream_wait",
    "stream switches": "stream_switch",
    "stream lookups": "stream_lookup",
    "record_stream calls": "record_stream",
    "hand-overs by autograd": "engine_handover",
    "waits of the host": "host_wait",
}


def figures_of(counts: Counts) -> dict[str, Value]:
    """By name; the name of a part of the figure above begins with spaces."""
    phases, nccl = counts.phases, counts.nccl_links
    copies, copied = copies_by_link(counts)
    calls = _sums(phase.host_calls for phase in phases.values())
    issued, reduced = (_traffic((phase.collectives for phase in phases.values()), field) for field in _FIELDS)
    peaks = [peak for phase in phases.values() for peak in (phase.peak_bytes or {}).values()]

    def total(field: str) -> Value:
        values = [value for phase in phases.values() if (value := getattr(phase, field)) is not None]
        return sum(values) if values else None

    def share(part: str, whole: str) -> Value:
        size = getattr(counts.dependencies, whole, None)
        return float(getattr(counts.dependencies, part) / size) if size else None

    return {
        "operators": total("operators"),
        **{f"  {phase}": phases[phase].operators if phase in phases else None for phase in Phase},
        "kernels": total("kernels"),
        "FLOPs": total("flops"),
        "copies between devices": _total(_between_devices(copies)),
        "  bytes": _total(_between_devices(copied)),
        "  bytes out of the busiest device": _busiest(copied, 0),
        "    with NCCL, out": _busiest(nccl, 0),
        "  bytes into the busiest device": _busiest(copied, 1),
        "    with NCCL, in": _busiest(nccl, 1),
        "  bytes of the busiest link": _busiest(copied, None),
        "    with NCCL, link": _busiest(nccl, None),
        "copies from the host": _total(_at_host(copies, 0)),
        "  bytes from it": _total(_at_host(copied, 0)),
        "copies to the host": _total(_at_host(copies, 1)),
        "  bytes to it": _total(_at_host(copied, 1)),
        "collectives": _total(issued),
        "  bytes each rank": _total(reduced),
        **{name: None if calls is None else calls.get(call, 0) for name, call in _CALLS.items()},
        "allocations": total("allocations"),
        "peak bytes": max(peaks, default=None),
        "Python calls": total("python_calls"),
        "early parameters": share("before_first_layer_bytes", "broadcast_bytes"),
        "gradients ready at half": share("ready_at_half_bytes", "reduced_bytes"),
        "gradients free at half": share("startable_at_half_bytes", "reduced_bytes"),
    }


def copies_by_link(counts: Counts) -> tuple[_Sums, _Sums]:
    """Copies and bytes of a step; None if not counted."""
    count, size_bytes = (_traffic((phase.copies for phase in counts.phases.values()), field) for field in _FIELDS)
    return count, size_bytes


def _sums(tables: Iterable[Mapping[str, int] | None]) -> _Sums:
    counted_tables = [table for table in tables if table is not None]
    return sum(map(Counter, counted_tables), Counter()) if counted_tables else None


def _traffic(tables: Iterable[Mapping[str, Traffic] | None], field: str) -> _Sums:
    counted_tables = [table for table in tables if table is not None]
    return _sums({name: getattr(traffic, field) for name, traffic in table.items()} for table in counted_tables)


def _total(sums: _Sums) -> int | None:
    return None if sums is None else sum(sums.values())


def _between_devices(sums: _Sums) -> _Sums:
    return sums and {link: value for link, value in sums.items() if "host" not in link}


def _at_host(sums: _Sums, end: int) -> _Sums:
    return sums and {link: value for link, value in sums.items() if link.split("->")[end] == "host"}


def _busiest(sizes: _Sums, end: int | None) -> int | None:
    """The most bytes by the device where links begin (0) or end (1), or by link (None)."""
    of_ends: Counter[str] = Counter()
    for link, size in (_between_devices(sizes) or {}).items():
        of_ends[link if end is None else link.split("->")[end]] += size
    return None if sizes is None else max(of_ends.values(), default=0)
