"""The most host memory of each variant."""

from dpbench.report.page.machines import MachineResults
from dpbench.report.page.parts import DataRow, Panel, Shown
from dpbench.report.page.theme import chart, coloured, number_axis, row_step, rows_of, tooltip, variant_colours
from dpbench.results.compare import Comparison
from dpbench.results.summary import Summary

_MIB = 2.0**20


def host_memory(found: MachineResults) -> Panel | None:
    """Return the processes' peak by variant; None if there is none."""
    rows = {each.setting.setting: own for each in found.shown if (own := _host_rows(each))}
    if not rows:
        return None
    encoding = {
        "y": rows_of("variant"),
        "x": number_axis("mib", "MiB of host memory"),
        "color": coloured("variant", variant_colours(found.variants), legend=False),
        "tooltip": tooltip(("variant", "variant"), ("mib", "MiB")),
    }
    spec = chart(
        {"mark": {"type": "bar", "height": {"band": 0.6}}, "encoding": encoding}, height=row_step(found.variants)
    )
    return Panel(
        "host-memory",
        "Host memory",
        "Each process's peak since it began, summed over the processes of a case. Memory that processes share counts "
        "in each of them.",
        (Shown("variant", "variant"), Shown("mib", "MiB")),
        rows,
        spec,
        "setting",
        found.first,
        found.labels,
    )


def _host_rows(found: Comparison) -> list[DataRow]:
    return [
        {"variant": str(row.summary.case.variant), "mib": round(peak / _MIB, 1)}
        for row in found.rows
        if (peak := _host(row.summary)) is not None
    ]


def _host(found: Summary) -> float | None:
    return None if found.peak_rss_bytes is None else found.peak_rss_bytes.value
