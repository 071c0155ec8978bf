"""Bytes by link of one step, counted exactly on simulated devices: as a matrix."""

from collections import Counter
from collections.abc import Mapping, Sequence

from dpbench.analysis.answer import place
from dpbench.cases.case import Case
from dpbench.records.counts import CountRecord
from dpbench.report.page.drawing import cells, names_axis, strength
from dpbench.report.page.machines import MachineResults
from dpbench.report.page.parts import DataRow, Panel
from dpbench.report.page.theme import series
from dpbench.text.quantities import byte_unit, number

_CELL_PX = 38
_COLUMNS = {"source": "from", "target": "to", "shown": "bytes", "copies": "copies"}


def link_matrix(machine_results: MachineResults) -> Panel | None:
    """Return the matrix from x to; None without counted copies."""
    counted = _counted(machine_results.counts)
    if not counted:
        return None
    rows = {key: [_row(*pair, *sent) for pair, sent in links.items()] for key, links in counted.items()}
    x, y = names_axis("target", "to", is_sorted=True, orient="top"), names_axis("source", "from", is_sorted=True)
    look = {"color": series(1)}
    spec = cells(x, y, {"text": "shown"}, _COLUMNS, px=_CELL_PX, look=look, fillOpacity=strength("mib"))
    text = "What goes from each device to each other in one step. Counted exactly on simulated devices, not measured."
    labels = {key: key.replace("|", ", ") for key in rows}
    return Panel("link-matrix", "Bytes by link", text, _COLUMNS, rows, spec, "counted", labels=labels)


_Links = Mapping[tuple[str, str], tuple[int, int]]
"""Bytes and copies by source and target."""


def _counted(counts: Sequence[CountRecord]) -> dict[str, _Links]:
    found = {_label(record.case): _links(record) for record in counts}
    return {key: links for key, links in found.items() if links}


def _label(case: Case) -> str:
    return f"{case.variant}: {place(case)}, {case.mode}, {case.dtype}"


def _links(record: CountRecord) -> _Links:
    sizes: Counter[tuple[str, str]] = Counter()
    copies: Counter[tuple[str, str]] = Counter()
    for phase in record.counts.phases.values() if record.counts else ():
        for name, traffic in (phase.copies or {}).items():
            source, _, target = name.partition("->")
            if source != target:
                sizes[source, target] += traffic.size_bytes
                copies[source, target] += traffic.count
    return {pair: (size, copies[pair]) for pair, size in sorted(sizes.items())}


def _row(source: str, target: str, size: int, copies: int) -> DataRow:
    unit, name = byte_unit([size])
    return {
        "source": source,
        "target": target,
        "mib": round(size / 2**20, 4),
        "shown": f"{number(size / unit)} {name}",
        "copies": copies,
    }
