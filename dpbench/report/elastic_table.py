"""Elastic runs as tables and JSON: the runs, and the outages with their parts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import isfinite
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from dpbench.elastic.elastic_record import ElasticEvent, ElasticRecord, FaultKind, RunScheme
from dpbench.elastic.outage import (
    Outage,
    OutagePart,
    is_same_to_the_bit,
    loss_difference,
    outages_of,
    steps_done,
    steps_kept,
    steps_per_s,
)
from dpbench.elastic.run_files import HEARTBEAT_S, LAST_CALL_S, MOST_LATE_HEARTBEATS
from dpbench.records.record import Outcome
from dpbench.report.table import NONE, Column, Table, json_of
from dpbench.text.quantities import number

SCHEMA = 2
PARTS_LEGEND = "Each part of an outage begins where the one before ends, so the parts add up to the outage."
RUNS_LEGEND = (
    "Lost: steps that were done and are in no checkpoint when the run ends. Same end: loss and all parameters equal "
    "the undisturbed run's to the last bit. If the number of ranks changed, only the loss, up to the shown distance."
)
MEMBERSHIP_LEGEND = (
    "An agent that left counts as gone after "
    f"{HEARTBEAT_S * MOST_LATE_HEARTBEATS} s (torch's default: 15 s), and a rendezvous that lacks agents closes after "
    f"{LAST_CALL_S} s (torch's default: 30 s). At a join, rank 0 waits until its agent has noticed the new one."
)


@dataclass(frozen=True)
class ElasticRun:
    """A run, and the undisturbed run's last event, None for that run itself."""

    record: ElasticRecord
    undisturbed_end: ElasticEvent | None

    @cached_property
    def outages(self) -> tuple[Outage, ...]:
        return tuple(outages_of(self.record.events))

    @property
    def steps_per_s(self) -> float | None:
        """Without outages: before the first one."""
        return self.outages[0].steps_per_s_before if self.outages else steps_per_s(self.record.events)

    @property
    def steps_redone(self) -> int | None:
        steps = [outage.redone_steps for outage in self.outages]
        return None if None in steps else sum(count or 0 for count in steps)

    @property
    def steps_lost(self) -> int:
        events = self.record.events
        return 0 if self.record.outcome is Outcome.OK else steps_done(events) - steps_kept(events)

    @property
    def is_same_end(self) -> bool | None:
        """None for the undisturbed run itself."""
        done, expected = self.record.done, self.undisturbed_end
        return None if expected is None or done is None else is_same_to_the_bit(done, expected)

    @property
    def loss_difference(self) -> float | None:
        """None for the undisturbed run, and if a loss is not a number."""
        done, expected = self.record.done, self.undisturbed_end
        difference = None if expected is None or done is None else loss_difference(done, expected)
        return difference if difference is not None and isfinite(difference) else None

    @property
    def end_in_words(self) -> str:
        record, difference = self.record, self.loss_difference
        if self.is_same_end is None:
            return NONE
        if self.is_same_end:
            return "yes"
        if not record.settings.is_world_changed or record.outcome is not Outcome.OK or difference is None:
            return "no"
        return f"loss to {difference:.0e}" if difference else "loss"


def runs_of(records: Sequence[ElasticRecord]) -> list[ElasticRun]:
    """Of one command."""
    end = next((record.done for record in records if record.scheme is RunScheme.UNDISTURBED), None)
    return [ElasticRun(record, None if record.scheme is RunScheme.UNDISTURBED else end) for record in records]


def _part_s(part: OutagePart, outage: Outage) -> float | None:
    return outage.parts[part].seconds if part in outage.parts else None


def _fault(outage: Outage) -> str:
    rank = "" if outage.fault.detail == FaultKind.JOIN else f":{outage.fault.rank}"
    return f"{outage.fault.detail}@{outage.fault.step}{rank}"


RUN_COLUMNS = (
    Column("run", lambda run: run.record.scheme, key="scheme"),
    Column("outcome", lambda run: run.record.outcome, lambda outcome: outcome.replace("_", " "), key="outcome"),
    Column("steps\ndone", lambda run: steps_done(run.record.events), key="steps_done"),
    Column("steps/s", lambda run: run.steps_per_s, key="steps_per_s"),
    Column("steps\ndone again", lambda run: run.steps_redone),
    Column("lost", lambda run: run.steps_lost, key="steps_lost"),
    Column("final loss", lambda run: run.record.done and run.record.done.loss, "{:.6g}".format, key="final_loss"),
    Column("same\nend", lambda run: run.end_in_words),
    Column("run, s", lambda run: run.record.duration_s, key="duration_s"),
)
OUTAGE_COLUMNS = (
    Column("fault", _fault, key="fault"),
    Column("outage\ns", lambda outage: outage.span and outage.span.seconds, key="outage_s"),
    *(Column(f"{part}\ns", partial(_part_s, part), key=part) for part in OutagePart),
    Column("steps\nagain", lambda outage: outage.redone_steps, key="redone_steps"),
    Column("rounds", lambda outage: outage.rounds, key="rounds"),
    Column("steps/s\nbefore", lambda outage: outage.steps_per_s_before, key="steps_per_s_before"),
    Column("steps/s\nafter", lambda outage: outage.steps_per_s_after, key="steps_per_s_after"),
)
"""On a terminal, in JSON and on a page. Times are in seconds."""


def outages_in_words(run: ElasticRun) -> Iterator[str]:
    for outage in run.outages:
        if outage.span is None:
            yield f"{_fault(outage)}: the run did not catch up."
            continue
        part, span = max(outage.parts.items(), key=lambda item: item[1].seconds)
        longest = f"Its longest part, {part}, took {number(span.seconds)} s."
        cost = f"{_fault(outage)} cost {number(outage.span.seconds)} s."
        yield f"{cost} {longest} Steps done again: {outage.redone_steps}."


def elastic_text(records: Sequence[ElasticRecord]) -> Group:
    runs, settings = runs_of(records), records[0].settings
    title = (
        f"{settings.workload}, batch {settings.batch}, {settings.dtype}, {settings.ranks} ranks, "
        f"{settings.steps} steps, checkpoint every {settings.checkpoint_every} by {settings.backend}, "
        f"seed {settings.seed}: {', '.join(map(str, settings.plan)) or 'no faults'}"
    )
    parts: list[RenderableType] = [Table(title, RUN_COLUMNS, runs), Text()]
    for run in runs:
        if run.record.scheme is RunScheme.ELASTIC:
            parts += [Table("outages", OUTAGE_COLUMNS, run.outages), Text()]
    parts += [Text(f"{record.scheme}: {record.reason}") for record in records if record.reason]
    legend = f"Steps/s are rank 0's, checkpoints included. {RUNS_LEGEND} {PARTS_LEGEND}"
    return Group(*parts, Text(f"{legend} {MEMBERSHIP_LEGEND}" if settings.is_world_changed else legend, style="dim"))


def elastic_json(records: Sequence[ElasticRecord]) -> dict[str, Any]:
    """Times are in seconds."""
    return {"schema": SCHEMA, "runs": [_run_json(run) for run in runs_of(records)]}


def _run_json(run: ElasticRun) -> dict[str, Any]:
    record = run.record
    return {
        **json_of(RUN_COLUMNS, run),
        "reason": record.reason,
        "steps_in_checkpoint": steps_kept(record.events),
        "parameters_sha256": record.done and record.done.digest,
        "same_end": run.is_same_end,
        "loss_difference": run.loss_difference,
        "outages": [_outage_json(outage) for outage in run.outages],
    }


def _outage_json(outage: Outage) -> dict[str, Any]:
    row = json_of(OUTAGE_COLUMNS, outage)
    parts_s = {part: value for part in OutagePart if (value := row.pop(part)) is not None}
    return {**row, "parts_s": parts_s}
