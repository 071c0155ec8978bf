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
from dpbench.report.table import NONE, Column, Table, json_of, of, titled
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
    Column("run", of("record.scheme"), key="scheme"),
    Column("outcome", of("record.outcome"), lambda outcome: outcome.replace("_", " "), key="outcome"),
    Column("steps\ndone", lambda run: steps_done(run.record.events), key="steps_done"),
    Column("steps/s", of("steps_per_s"), key="steps_per_s"),
    Column("steps\ndone again", of("steps_redone")),
    Column("lost", of("steps_lost"), key="steps_lost"),
    Column("final loss", of("record.done.loss"), "{:.6g}".format, key="final_loss"),
    Column("same\nend", of("end_in_words")),
    Column("run, s", of("record.duration_s"), key="duration_s"),
    Column("", of("record.reason"), key="reason"),
    Column("", lambda run: steps_kept(run.record.events), key="steps_in_checkpoint"),
    Column("", of("record.done.digest"), key="parameters_sha256"),
    Column("", of("is_same_end"), key="same_end"),
    Column("", of("loss_difference"), key="loss_difference"),
)
OUTAGE_COLUMNS = (
    Column("fault", _fault, key="fault"),
    Column("outage\ns", of("span.seconds"), key="outage_s"),
    *(Column(f"{part}\ns", partial(_part_s, part), key=part) for part in OutagePart),
    Column("steps\nagain", of("redone_steps"), key="redone_steps"),
    Column("rounds", of("rounds"), key="rounds"),
    Column("steps/s\nbefore", of("steps_per_s_before"), key="steps_per_s_before"),
    Column("steps/s\nafter", of("steps_per_s_after"), key="steps_per_s_after"),
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
    parts: list[RenderableType] = [Table(title, titled(RUN_COLUMNS), runs), Text()]
    for run in runs:
        if run.record.scheme is RunScheme.ELASTIC:
            parts += [Table("outages", OUTAGE_COLUMNS, run.outages), Text()]
    parts += [Text(f"{record.scheme}: {record.reason}") for record in records if record.reason]
    legend = f"Steps/s are rank 0's, checkpoints included. {RUNS_LEGEND} {PARTS_LEGEND}"
    return Group(*parts, Text(f"{legend} {MEMBERSHIP_LEGEND}" if settings.is_world_changed else legend, style="dim"))


def elastic_json(records: Sequence[ElasticRecord]) -> dict[str, Any]:
    """Times are in seconds."""
    runs = [
        {**json_of(RUN_COLUMNS, run), "outages": [_outage_json(outage) for outage in run.outages]}
        for run in runs_of(records)
    ]
    return {"schema": SCHEMA, "runs": runs}


def _outage_json(outage: Outage) -> dict[str, Any]:
    row = json_of(OUTAGE_COLUMNS, outage)
    parts_s = {part: value for part in OutagePart if (value := row.pop(part)) is not None}
    return {**row, "parts_s": parts_s}
