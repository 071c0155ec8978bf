"""Elastic runs as tables and JSON: the runs, and the outages with their parts."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import isfinite
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from dpbench.elastic.elastic_record import ElasticEvent, ElasticRecord, FaultKind, RunScheme
from dpbench.elastic.job import HEARTBEAT_S, LAST_CALL_S, MOST_LATE_HEARTBEATS
from dpbench.elastic.outage import Outage, OutagePart, outages_of, steps_done, steps_kept, steps_per_s
from dpbench.elastic.same_end import is_same_to_the_bit, loss_difference
from dpbench.records.record import Outcome
from dpbench.report.table import NONE, Column, Table

SCHEMA = 2
_LEGEND = (
    "Steps/s are rank 0's, checkpoints included. Lost: steps that were done and are in no checkpoint when the run "
    "ends. Same end: loss and all parameters equal the undisturbed run's to the last bit. If the number of ranks "
    "changed, only the loss, up to the shown distance. Each part of an outage begins where the one before ends, so the "
    "parts add up to the outage."
)
MEMBERSHIP_LEGEND = (
    "An agent that left counts as gone after "
    f"{HEARTBEAT_S * MOST_LATE_HEARTBEATS} s (torch's default: 15 s), and a rendezvous that lacks agents closes after "
    f"{LAST_CALL_S} s (torch's default: 30 s). At a join, rank 0 waits until its agent has noticed the new one."
)


def elastic_text(records: Sequence[ElasticRecord]) -> Group:
    """Return the tables, the reasons of failures and a legend."""
    parts: list[RenderableType] = [_runs(records), Text()]
    for record in records:
        if record.scheme is RunScheme.ELASTIC:
            parts += [_outages(outages_of(record.events)), Text()]
    parts += [Text(f"{record.scheme}: {record.reason}") for record in records if record.reason]
    legend = f"{_LEGEND} {MEMBERSHIP_LEGEND}" if records[0].settings.is_world_changed else _LEGEND
    return Group(*parts, Text(legend, style="dim"))


def elastic_json(records: Sequence[ElasticRecord]) -> dict[str, Any]:
    """Return the same as one JSON object. Times are in seconds."""
    return {"schema": SCHEMA, "runs": [_run_json(record, records) for record in records]}


def _runs(records: Sequence[ElasticRecord]) -> Table:
    settings = records[0].settings
    plan = ", ".join(map(str, settings.plan)) or "no faults"
    title = (
        f"{settings.workload}, batch {settings.batch}, {settings.dtype}, {settings.ranks} ranks, "
        f"{settings.steps} steps, checkpoint every {settings.checkpoint_every} by {settings.backend}, "
        f"seed {settings.seed}: {plan}"
    )
    columns = [replace(each, header=_SHORT.get(each.header, each.header)) for each in run_columns(records)]
    return Table(title, columns, records)


def run_columns(records: Sequence[ElasticRecord]) -> list[Column]:
    """Return the table of runs, on a terminal, in JSON and on a page."""
    return [
        Column("run", lambda record: record.scheme, key="scheme"),
        Column("outcome", lambda record: record.outcome, lambda found: found.replace("_", " "), key="outcome"),
        Column("steps done", lambda record: steps_done(record.events), key="steps_done"),
        Column("steps/s", _rate, key="steps_per_s"),
        Column("steps done again", _redone),
        Column("lost", _lost, key="steps_lost"),
        Column(
            "final loss",
            lambda record: None if record.done is None else record.done.loss,
            "{:.6g}".format,
            key="final_loss",
        ),
        Column("same end", lambda record: _same_end_text(record, records)),
        Column("run, s", lambda record: record.duration_s, key="duration_s"),
    ]


_SHORT = {"steps done": "steps\ndone", "steps done again": "steps\ndone again", "same end": "same\nend"}


def _fault(outage: Outage) -> str:
    rank = "" if outage.fault.detail == FaultKind.JOIN else f":{outage.fault.rank}"
    return f"{outage.fault.detail}@{outage.fault.step}{rank}"


def _part_s(part: OutagePart, outage: Outage) -> float | None:
    return outage.parts[part].seconds if part in outage.parts else None


OUTAGE_COLUMNS = (
    Column("fault", _fault, key="fault"),
    Column("outage s", lambda outage: outage.span.seconds if outage.span else None, key="outage_s"),
    *(Column(f"{part} s", partial(_part_s, part), key=part) for part in OutagePart),
    Column("steps again", lambda outage: outage.redone_steps, key="redone_steps"),
    Column("rounds", lambda outage: outage.rounds, key="rounds"),
    Column("steps/s before", lambda outage: outage.steps_per_s_before, key="steps_per_s_before"),
    Column("steps/s after", lambda outage: outage.steps_per_s_after, key="steps_per_s_after"),
)
"""The table of outages, on a terminal, in JSON and on a page. Times are in seconds."""


def _outages(outages: Sequence[Outage]) -> Table:
    columns = [replace(column, header=column.header.replace(" ", "\n")) for column in OUTAGE_COLUMNS]
    return Table("outages", columns, outages)


def _rate(record: ElasticRecord) -> float | None:
    """Return the rate of the run without its outages: that before the first one."""
    found = outages_of(record.events)
    return found[0].steps_per_s_before if found else steps_per_s(record.events)


def _redone(record: ElasticRecord) -> int | None:
    found = [outage.redone_steps for outage in outages_of(record.events)]
    return None if None in found else sum(steps for steps in found if steps is not None)


def _lost(record: ElasticRecord) -> int:
    return 0 if record.outcome is Outcome.OK else steps_done(record.events) - steps_kept(record.events)


def _same_end_text(record: ElasticRecord, records: Sequence[ElasticRecord]) -> str:
    is_same, difference = _same_end(record, records), _difference(record, records)
    if is_same is None:
        return NONE
    if is_same:
        return "yes"
    if not record.settings.is_world_changed or record.outcome is not Outcome.OK or difference is None:
        return "no"
    return f"loss to {difference:.0e}" if difference else "loss"


def _same_end(record: ElasticRecord, records: Sequence[ElasticRecord]) -> bool | None:
    """Return whether the run ended with the undisturbed run's loss and parameters; None for that run itself."""
    expected = _expected(record, records)
    return None if expected is None or record.done is None else is_same_to_the_bit(record.done, expected)


def _difference(record: ElasticRecord, records: Sequence[ElasticRecord]) -> float | None:
    """Return the distance of the losses; None for the undisturbed run, and if a loss is not a number."""
    expected = _expected(record, records)
    if expected is None or record.done is None:
        return None
    found = loss_difference(record.done, expected)
    return found if isfinite(found) else None


def _expected(record: ElasticRecord, records: Sequence[ElasticRecord]) -> ElasticEvent | None:
    """Return the last event of the undisturbed run; None for that run itself."""
    if record.scheme is RunScheme.UNDISTURBED:
        return None
    return next((each.done for each in records if each.scheme is RunScheme.UNDISTURBED), None)


def _run_json(record: ElasticRecord, records: Sequence[ElasticRecord]) -> dict[str, Any]:
    done = record.done
    return {
        **{column.key: column.value(record) for column in run_columns(records) if column.key},
        "reason": record.reason,
        "steps_in_checkpoint": steps_kept(record.events),
        "parameters_sha256": None if done is None else done.digest,
        "same_end": _same_end(record, records),
        "loss_difference": _difference(record, records),
        "outages": [_outage_json(outage) for outage in outages_of(record.events)],
    }


def _outage_json(outage: Outage) -> dict[str, Any]:
    row = {column.key: column.value(outage) for column in OUTAGE_COLUMNS}
    parts_s = {part: value for part in OutagePart if (value := row.pop(part)) is not None}
    return {**row, "parts_s": parts_s}
