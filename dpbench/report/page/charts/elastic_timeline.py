"""What each rank of an elastic run did when, with the faults."""

from collections.abc import Mapping, Sequence

from dpbench.elastic.elastic_record import ElasticRecord
from dpbench.elastic.lanes import LanePhase, lane_faults, lane_spans
from dpbench.report.page.parts import DataRow, Panel, Shown
from dpbench.report.page.theme import BAD, STEP_PX, chart, coloured, number_axis, rows_of, series, tooltip

_NS = 1e-9
_MOST_SPANS = 4000
_COLOURS = {
    LanePhase.NOTICING: series(5),
    LanePhase.STOPPING: series(2),
    LanePhase.RENDEZVOUS: series(7),
    LanePhase.START: series(1),
    LanePhase.RESTORE: series(4),
    LanePhase.REDONE: series(6),
    LanePhase.STEPS: series(0),
    LanePhase.CHECKPOINT: series(3),
}


def elastic_timeline(runs: Mapping[str, ElasticRecord], labels: Mapping[str, str], first: str) -> Panel | None:
    """Return the lanes of each run by its key; None if no run has time stamps."""
    rows = {key: _rows(record) for key, record in runs.items() if record.events}
    if not rows:
        return None
    tip = tooltip(("lane", "lane"), ("phase", "phase"), ("begin_s", "from s"), ("end_s", "to s"), ("shown", "s"))
    spans = {
        "y": rows_of("lane"),
        "x": number_axis("begin_s", "seconds of the run"),
        "x2": {"field": "end_s"},
        "color": coloured("phase", list(_COLOURS.items())),
        "tooltip": tip,
    }
    faults = {
        "y": rows_of("lane"),
        "x": {"field": "at_s", "type": "quantitative"},
        "tooltip": tooltip(("phase", "fault"), ("at_s", "at s")),
    }
    spec = chart(
        {"mark": {"type": "bar", "height": {"band": 0.72}}, "encoding": spans},
        {"mark": {"type": "point", "shape": "cross", "size": 130, "color": BAD, "angle": 45}, "encoding": faults},
        height={"step": STEP_PX},
    )
    columns = (
        *(Shown("lane", "lane"), Shown("phase", "phase or fault")),
        *(Shown("begin_s", "from s"), Shown("end_s", "to s"), Shown("shown", "s")),
    )
    text = (
        "A lane is a rank, and the first one has the parts of the outages. A cross is a fault. In a gap a rank has no "
        "process, or waits for a peer that failed."
    )
    is_cut = any(len(own) >= _MOST_SPANS for own in rows.values())
    more = f" Only the first {_MOST_SPANS:,} spans of a run are drawn." if is_cut else ""
    return Panel("timeline", "Elastic timeline", text + more, columns, rows, spec, "elastic", first, labels)


def _rows(record: ElasticRecord) -> Sequence[DataRow]:
    begin_ns = record.events[0].at_ns
    spans: list[DataRow] = [
        {
            "lane": span.lane,
            "phase": str(span.phase),
            "begin_s": _seconds(span.begin_ns - begin_ns),
            "end_s": _seconds(span.end_ns - begin_ns),
            "at_s": None,
            "shown": _seconds(span.end_ns - span.begin_ns),
        }
        for span in lane_spans(record.events)
    ]
    faults: list[DataRow] = [
        {
            "lane": fault.lane,
            "phase": fault.name,
            "begin_s": None,
            "end_s": None,
            "at_s": _seconds(fault.at_ns - begin_ns),
            "shown": None,
        }
        for fault in lane_faults(record.events)
    ]
    return [*spans[: _MOST_SPANS - len(faults)], *faults]


def _seconds(ns: int) -> float:
    return round(ns * _NS, 4)
