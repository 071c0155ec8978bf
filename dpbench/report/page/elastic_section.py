"""The section of elastic runs: the outages with their parts, and the runs beside each other."""

from collections.abc import Iterator, Sequence
from typing import Any

from dpbench.elastic.elastic_record import ElasticRecord, RunScheme
from dpbench.elastic.outage import Outage, OutagePart, outages_of
from dpbench.report.elastic_table import MEMBERSHIP_LEGEND, OUTAGE_COLUMNS, elastic_json
from dpbench.report.page.drawing import STEP_PX, chart, layer, number_axis, rows_of
from dpbench.report.page.parts import ALL, Cell, DataRow, Panel, Section
from dpbench.report.page.theme import coloured, series
from dpbench.report.units import number

_MOST_ANSWERS = 6
_MOST_ROWS = 500
_MOST_LETTERS = 600


def elastic_section(records: Sequence[ElasticRecord]) -> Section | None:
    """Return the section; None without records."""
    if not records:
        return None
    commands = _by_command(records)
    found = {run: elastic_json(own)["runs"] for run, own in commands.items()}
    panels = [_outages(commands), _runs(found)]
    answers = [text for run in found.values() for text in _answers(run)]
    return Section("elastic", "What does an outage cost?", [each for each in panels if each], answers[:_MOST_ANSWERS])


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
    rows = {record.run: [_row(outage) for outage in outages_of(record.events)[:_MOST_ROWS]] for record in runs}
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
    text = "Each part lies between two time stamps of its own. Unstamped is what no part covers."
    if any(record.settings.is_world_changed for record in runs):
        text = f"{text} {MEMBERSHIP_LEGEND}"
    labels = {record.run: _label(record) for record in runs}
    spec = chart(bars, height={"step": STEP_PX})
    return Panel("outages", "Outages", text, columns, rows, spec, "elastic", next(iter(rows)), labels)


def _row(outage: Outage) -> dict[str, Cell]:
    values = {column.key: column.value(outage) for column in OUTAGE_COLUMNS}
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in values.items()}


def _runs(found: dict[str, list[dict[str, Any]]]) -> Panel:
    rows: list[DataRow] = [
        {
            "run": run,
            "scheme": each["scheme"],
            "outcome": each["outcome"].replace("_", " "),
            "done": each["steps_done"],
            "lost": each["steps_lost"],
            "rate": _rounded(each["steps_per_s"]),
            "loss": None if each["final_loss"] is None else repr(each["final_loss"]),
            "same": {None: None, True: "yes", False: "no"}[each["same_end"]],
            "difference": None if each["loss_difference"] is None else f"{each['loss_difference']:.1e}",
            "duration": _rounded(each["duration_s"]),
            "reason": _short(each["reason"] or ""),
        }
        for run, own in found.items()
        for each in own
    ]
    columns = {"run": "run"} if len(found) > 1 else {}  # it tells several commands apart
    columns |= {"scheme": "scheme", "outcome": "outcome", "done": "steps done", "lost": "steps lost", "rate": "steps/s"}
    columns |= {"loss": "final loss", "same": "same to the bit", "difference": "difference of losses"}
    columns |= {"duration": "run s", "reason": "reason"}
    text = "Lost steps were done and are in no checkpoint when the run ends."
    return Panel("runs", "Runs", text, columns, {ALL: rows[:_MOST_ROWS]})


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MOST_LETTERS else f"{line[:_MOST_LETTERS]}…"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
