"""The section of elastic runs: the outages with their parts, and the runs beside each other."""

from collections.abc import Sequence

from dpbench.elastic.elastic_record import ElasticRecord, RunScheme
from dpbench.report.elastic_table import (
    MEMBERSHIP_LEGEND,
    OUTAGE_COLUMNS,
    PARTS_LEGEND,
    RUN_COLUMNS,
    RUNS_LEGEND,
    ElasticRun,
    outages_in_words,
    runs_of,
)
from dpbench.report.page.parts import ALL, DataRow, Panel, Section, cells_of, headers_of
from dpbench.text.outside import shortened

_MOST_ANSWERS = 6
_MOST_ROWS = 500


def elastic_section(records: Sequence[ElasticRecord]) -> Section | None:
    """None without records."""
    by_command: dict[str, list[ElasticRecord]] = {}
    for record in records:
        by_command.setdefault(record.run, []).append(record)
    runs = [run for records in by_command.values() for run in runs_of(records)]
    if not runs:
        return None
    panels = [panel for panel in (_outages(runs), _runs(runs)) if panel is not None]
    answers = [text for run in runs for text in outages_in_words(run)][:_MOST_ANSWERS]
    return Section("elastic", "What does an outage cost?", panels, answers)


def _outages(runs: Sequence[ElasticRun]) -> Panel | None:
    """The outages of each command with their parts; None without outages."""
    disturbed = {run.record.run: run for run in runs if run.record.scheme is RunScheme.ELASTIC and run.outages}
    if not disturbed:
        return None
    rows = {
        key: [cells_of(OUTAGE_COLUMNS, outage) for outage in run.outages[:_MOST_ROWS]] for key, run in disturbed.items()
    }
    columns = headers_of(OUTAGE_COLUMNS)
    is_world_changed = any(run.record.settings.is_world_changed for run in runs)
    text = f"{PARTS_LEGEND} {MEMBERSHIP_LEGEND}" if is_world_changed else PARTS_LEGEND
    labels = {key: _label(run.record) for key, run in disturbed.items()}
    return Panel("outages", "Outages", text, columns, rows, None, "elastic", next(iter(rows)), labels)


def _label(record: ElasticRecord) -> str:
    plan = ", ".join(map(str, record.settings.plan))
    return f"{record.settings.workload}, {record.settings.ranks} ranks, {plan} ({record.run})"


def _runs(runs: Sequence[ElasticRun]) -> Panel:
    several = len({run.record.run for run in runs}) > 1
    columns = {**({"command": "command"} if several else {}), **headers_of(RUN_COLUMNS)}
    columns |= {"off": "difference of losses", "reason": "reason"}
    rows: list[DataRow] = [
        {
            "command": run.record.run,
            **cells_of(RUN_COLUMNS, run),
            "off": None if run.loss_difference is None else f"{run.loss_difference:.1e}",
            "reason": shortened(run.record.reason or ""),
        }
        for run in runs[:_MOST_ROWS]
    ]
    return Panel("runs", "Runs", RUNS_LEGEND, columns, {ALL: rows})
