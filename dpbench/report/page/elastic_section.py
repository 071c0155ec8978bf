"""The section of elastic runs: the outages with their parts, and the runs beside each other."""

from collections.abc import Iterator, Sequence
from typing import Any

from dpbench.elastic.elastic_record import ElasticRecord, RunScheme
from dpbench.elastic.outage import OutagePart, outages_of
from dpbench.report.elastic_table import MEMBERSHIP_LEGEND, OUTAGE_COLUMNS, elastic_json, run_columns
from dpbench.report.page.drawing import STEP_PX, chart, layer, number_axis, rows_of
from dpbench.report.page.parts import ALL, Cell, DataRow, Panel, Section
from dpbench.report.page.theme import coloured, series
from dpbench.report.table import Column, shown
from dpbench.text.quantities import number

_MOST_ANSWERS = 6
_MOST_ROWS = 500
_MOST_LETTERS = 600


def elastic_section(records: Sequence[ElasticRecord]) -> Section | None:
    """Return the section; None without records."""
    if not records:
        return None
    commands = _by_command(records)
    panels = [_outages(commands), _runs(commands)]
    answers = [text for own in commands.values() for text in _answers(elastic_json(own)["runs"])]
    return Section(
        "elastic", "What does an outage cost?", [panel for panel in panels if panel], answers[:_MOST_ANSWERS]
    )


def _by_command(records: Sequence[ElasticRecord]) -> dict[str, list[ElasticRecord]]:
    found: dict[str, list[ElasticRecord]] = {}
    for record in records:
        found.setdefault(record.run, []).append(record)
    return found


def _label(record: ElasticRecord) -> str:
    plan = ", ".join(map(str, record.settings.plan))
    return f"{record.settings.workload}, {record.settings.ranks} ranks, {plan} ({record.run})"


def _answers(runs: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield a sentence for each outage."""
    for run in runs:
        for outage in run["outages"]:
            if outage["outage_s"] is None:
                yield f"{outage['fault']}: the run did not catch up."
                continue
            part, part_s = max(outage["parts_s"].items(), key=lambda item: item[1])
            again = f"Steps done again: {outage['redone_steps']}."
            longest = f"Its longest part, {part}, took {number(part_s)} s."
            yield f"{outage['fault']} cost {number(outage['outage_s'])} s. {longest} {again}"


def _outages(commands: dict[str, list[ElasticRecord]]) -> Panel | None:
    """Return the table of outages of each command, with a bar of their parts; None without outages."""
    runs = [record for own in commands.values() for record in own if record.scheme is RunScheme.ELASTIC]
    rows = {
        record.run: [_row(OUTAGE_COLUMNS, outage) for outage in outages_of(record.events)[:_MOST_ROWS]]
        for record in runs
    }
    rows = {run: own for run, own in rows.items() if own}
    if not rows:
        return None
    columns = {column.key: column.header for column in OUTAGE_COLUMNS}
    bars = layer(
        "bar",
        {"height": {"band": 0.72}},
        y=rows_of("fault"),
        x=number_axis("seconds", "seconds of the outage"),
        color=coloured("part", [(part, series(place)) for place, part in enumerate(OutagePart)]),
        columns={"fault": "fault", "part": "part", "seconds": "s"},
    )
    bars["transform"] = [{"fold": list(OutagePart), "as": ["part", "seconds"]}]
    text = "Each part begins where the one before ends, so the parts add up to the outage."
    if any(record.settings.is_world_changed for record in runs):
        text = f"{text} {MEMBERSHIP_LEGEND}"
    labels = {record.run: _label(record) for record in runs}
    spec = chart(bars, height={"step": STEP_PX})
    return Panel("outages", "Outages", text, columns, rows, spec, "elastic", next(iter(rows)), labels)


def _runs(commands: dict[str, list[ElasticRecord]]) -> Panel:
    rows: list[DataRow] = []
    columns = {"command": "command"} if len(commands) > 1 else {}  # it tells several commands apart
    for run, records in commands.items():
        own = run_columns(records)
        columns |= {column.key or column.header: column.header for column in own}
        for record, as_json in zip(records, elastic_json(records)["runs"], strict=True):
            off = as_json["loss_difference"]
            more = {"off": None if off is None else f"{off:.1e}", "reason": _short(record.reason or "")}
            rows.append({"command": run, **_row(own, record), **more})
    columns |= {"off": "difference of losses", "reason": "reason"}
    text = (
        "Lost steps were done and are in no checkpoint when the run ends. Same end: loss and all parameters equal the "
        "undisturbed run's to the last bit. If the number of ranks changed, only the loss, up to the shown distance."
    )
    return Panel("runs", "Runs", text, columns, {ALL: rows[:_MOST_ROWS]})


def _row(columns: Sequence[Column], found: object) -> dict[str, Cell]:
    """Return the values of a row; those that are no numbers, or have a form of their own, as texts."""
    cells: dict[str, Cell] = {}
    for column in columns:
        value = column.value(found)
        if isinstance(value, int | float) and column.form is shown:
            value = round(value, 4)
        elif value is not None:
            value = column.form(value)
        cells[column.key or column.header] = value
    return cells


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MOST_LETTERS else f"{line[:_MOST_LETTERS]}…"
