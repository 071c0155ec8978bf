"""Bytes by link of one step, counted exactly on simulated devices: as a matrix."""

from collections import Counter

from dpbench.analysis.answer import place
from dpbench.records.counts import CountRecord
from dpbench.report.page.drawing import cells, names_axis
from dpbench.report.page.machines import MachineResults
from dpbench.report.page.parts import DataRow, Panel
from dpbench.report.page.theme import series
from dpbench.text.quantities import byte_unit, number


def link_matrix(machine: MachineResults) -> Panel | None:
    """Return the matrix from x to; None without counted copies."""
    counted = {
        f"{each.case.variant}: {place(each.case)}, {each.case.mode}, {each.case.dtype}": each for each in machine.counts
    }
    rows = {key: own for key, record in counted.items() if (own := _rows(record))}
    if not rows:
        return None
    columns = {"source": "from", "target": "to", "shown": "bytes", "copies": "copies"}
    x, y = names_axis("target", "to", is_sorted=True, orient="top"), names_axis("source", "from", is_sorted=True)
    spec = cells(x, y, "shown", "mib", series(1), px=38)
    text = "What goes from each device to each other in one step. Counted exactly on simulated devices, not measured."
    labels = {key: key.replace("|", ", ") for key in rows}
    return Panel("link-matrix", "Bytes by link", text, columns, rows, spec, "counted", labels=labels)


def _rows(record: CountRecord) -> list[DataRow]:
    sizes, copies = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for phase in record.counts.phases.values() if record.counts else ():
        for name, traffic in (phase.copies or {}).items():
            source, _, target = name.partition("->")
            if source != target:
                sizes[source, target] += traffic.size_bytes
                copies[source, target] += traffic.count
    return [_row(*pair, size, copies[pair]) for pair, size in sorted(sizes.items())]


def _row(source: str, target: str, size: int, copies: int) -> DataRow:
    unit, name = byte_unit([size])
    shown = f"{number(size / unit)} {name}"
    return {"source": source, "target": target, "mib": round(size / 2**20, 4), "shown": shown, "copies": copies}
