"""The section of elastic runs: the timeline, the outages with their parts, and the runs beside each other."""

from collections.abc import Iterator, Sequence
from typing import Any

from dpbench.elastic.elastic_record import ElasticRecord, RunScheme
from dpbench.elastic.outage import OutagePart
from dpbench.report.elastic.table import MEMBERSHIP_LEGEND, elastic_json
from dpbench.report.page.charts.elastic_timeline import elastic_timeline
from dpbench.report.page.parts import ALL, DataRow, Panel, Section, Shown
from dpbench.report.units import number

_MOST_ANSWERS = 6
_MOST_ROWS = 500
_MOST_LETTERS = 600


def elastic_section(records: Sequence[ElasticRecord]) -> Section | None:
    """Return the section; None without records."""
    if not records:
        return None
    commands = _by_command(records)
    runs = {f"{record.run}|{record.scheme}": record for record in records}
    first = next((key for key, record in runs.items() if record.scheme is RunScheme.ELASTIC), next(iter(runs)))
    labels = {key: _label(record, len(commands) > 1) for key, record in runs.items()}
    found = {run: elastic_json(own)["runs"] for run, own in commands.items()}
    panels = [elastic_timeline(runs, labels, first), _outages(found, records), _runs(found)]
    answers = [text for run in found.values() for text in _answers(run)]
    return Section("elastic", "What does an outage cost?", [each for each in panels if each], answers[:_MOST_ANSWERS])


def _by_command(records: Sequence[ElasticRecord]) -> dict[str, list[ElasticRecord]]:
    found: dict[str, list[ElasticRecord]] = {}
    for record in records:
        found.setdefault(record.run, []).append(record)
    return found


def _label(record: ElasticRecord, with_run: bool) -> str:
    plan = ", ".join(map(str, record.settings.plan)) or "no faults"
    text = f"{record.scheme}: {record.settings.workload}, {record.settings.ranks} ranks, {plan}"
    return f"{text} ({record.run})" if with_run else text


def _answers(runs: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield a sentence for each outage, and one for a wrapper that lost its lanes."""
    for run in runs:
        if run["scheme"] == RunScheme.WRAPPER and run["reason"]:
            yield f"The single-process wrapper: {_short(run['reason'])}."
        for outage in run["outages"] if run["scheme"] == RunScheme.ELASTIC else ():
            if outage["outage_s"] is None:
                yield f"{outage['fault']}: the run did not catch up."
                continue
            part, part_s = max(outage["parts_s"].items(), key=lambda item: item[1])
            again = f"Steps done again: {outage['redone_steps']}."
            longest = f"Its longest part, {part}, took {number(part_s)} s."
            yield f"{outage['fault']} cost {number(outage['outage_s'])} s. {longest} {again}"


def _outages(found: dict[str, list[dict[str, Any]]], records: Sequence[ElasticRecord]) -> Panel | None:
    rows: list[DataRow] = [
        {
            "run": run,
            "fault": outage["fault"],
            "outage": _rounded(outage["outage_s"]),
            **{part: _rounded(outage["parts_s"].get(part)) for part in OutagePart},
            "unstamped": _rounded(outage["unstamped_s"]),
            "again": outage["redone_steps"],
            "rounds": outage["rounds"],
            "before": _rounded(outage["steps_per_s_before"]),
            "after": _rounded(outage["steps_per_s_after"]),
        }
        for run, own in found.items()
        for each in own
        if each["scheme"] == RunScheme.ELASTIC
        for outage in each["outages"]
    ]
    if not rows:
        return None
    columns = (
        *_run_column(found),
        *(Shown("fault", "fault"), Shown("outage", "outage s")),
        *(Shown(part, f"{part} s") for part in OutagePart),
        *(Shown("unstamped", "unstamped s"), Shown("again", "steps again"), Shown("rounds", "rounds")),
        *(Shown("before", "steps/s before"), Shown("after", "steps/s after")),
    )
    text = "Each part lies between two time stamps of its own. Unstamped is what no part covers."
    if any(record.settings.is_world_changed for record in records):
        text = f"{text} {MEMBERSHIP_LEGEND}"
    return Panel("outages", "Outages", text, columns, {ALL: rows[:_MOST_ROWS]})


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
    columns = (
        *_run_column(found),
        *(Shown("scheme", "scheme"), Shown("outcome", "outcome")),
        *(Shown("done", "steps done"), Shown("lost", "steps lost"), Shown("rate", "steps/s")),
        *(Shown("loss", "final loss"), Shown("same", "same to the bit"), Shown("difference", "difference of losses")),
        *(Shown("duration", "run s"), Shown("reason", "reason")),
    )
    text = "Lost steps were done and are in no checkpoint when the run ends. Nothing restarts the wrapper's process."
    return Panel("runs", "Runs", text, columns, {ALL: rows[:_MOST_ROWS]})


def _run_column(found: dict[str, list[dict[str, Any]]]) -> tuple[Shown, ...]:
    """Return the column that tells several commands apart."""
    return (Shown("run", "run"),) if len(found) > 1 else ()


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MOST_LETTERS else f"{line[:_MOST_LETTERS]}…"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
