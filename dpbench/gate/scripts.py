"""Tier 0 of scripts: what their ranks send, compared between base and head.

A counter that grows is worse, with two exceptions. What is sent before the first forward is sent once, so it only
differs. So does what moves from one part of the step to another, such as from the forward to the backward.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from dpbench.analysis.communication import Communication, communication
from dpbench.errors import GateError
from dpbench.gate.judgement import Blame, CounterChange
from dpbench.gate.settings import ScriptBenchmark
from dpbench.gate.tier0 import MOST_CAUSES, Counters, causes
from dpbench.processes.count_all import CountingError
from dpbench.processes.count_scripts import count_scripts
from dpbench.processes.launch import Launcher
from dpbench.records.communication import ScriptJob, ScriptRecord
from dpbench.records.counts import diff


def compare_scripts(scripts: Sequence[ScriptBenchmark], base: Path, head: Path, launch: Launcher) -> Counters:
    """Count these scripts in both folders and return what differs. Raises GateError if one does not work on head."""
    missing = [script for script in scripts if not (head / script.script).is_file()]
    if missing:
        raise GateError(f"benchmark: script: {missing[0].script!r}: head has no such file; allowed: one that head has")
    jobs = [job_of(script, side) for script in scripts for side in (base, head) if (side / script.script).is_file()]
    try:
        records = iter(count_scripts(jobs, launch=launch) if jobs else ())
    except CountingError as error:
        raise GateError(" ".join(str(error).split())) from error
    found = [
        _compare(script.name, next(records) if (base / script.script).is_file() else None, next(records))
        for script in scripts
    ]
    return Counters(
        changes=tuple(change for each in found for change in each.changes),
        cases=sum(each.cases for each in found),
        notes=tuple(note for each in found for note in each.notes),
        blames=tuple(blame for each in found for blame in each.blames),
        new=tuple(name for each in found for name in each.new),
    )


def job_of(script: ScriptBenchmark, folder: Path) -> ScriptJob:
    """Return the job that counts a script in a commit's folder."""
    return ScriptJob(folder=str(folder), **script.model_dump())


def _compare(name: str, base: ScriptRecord | None, head: ScriptRecord) -> Counters:
    if head.reason is not None:
        raise GateError(f"benchmark: script: {name!r}: head: {head.reason}")
    if base is None:
        return Counters(notes=(f"{name}: new: nothing to hold it against, because base has no such file",), new=(name,))
    if base.reason is not None:
        return Counters(notes=(f"{name}: left out: base: {base.reason}",))
    old, new = communication(base.ranks), communication(head.ranks)
    changes, blames = compare_communication(name, old, new)
    sides = (("base", old), ("head", new))
    notes = [f"{name}: {side}: the ranks differ: {found.differences[0]}" for side, found in sides if found.differences]
    if old.steps != new.steps:
        notes.append(f"{name}: {old.steps} steps of base and {new.steps} of head were counted")
    return Counters(changes=changes, cases=1, notes=tuple(notes), blames=blames)


def compare_communication(
    name: str, base: Communication, head: Communication
) -> tuple[tuple[CounterChange, ...], tuple[Blame, ...]]:
    """Return the counters that differ, and the lines behind those that are worse. Pure."""
    olds, news = base.by_name(), head.by_name()
    changes = tuple(
        CounterChange(
            benchmark=name,
            counter=change.name,
            base=change.old or 0,
            head=change.new or 0,
            is_worse=is_worse(change.name, olds, news),
        )
        for change in diff(olds, news)
    )
    old, new = base.details(), head.details()
    worse = {change.counter: causes(change.counter, old, new) for change in changes if change.is_worse}
    blames = (
        Blame(benchmark=name, counter=counter, causes=tuple(found[:MOST_CAUSES]), more=len(found[MOST_CAUSES:]))
        for counter, found in worse.items()
    )
    return changes, tuple(blames)


def is_worse(counter: str, olds: Mapping[str, int], news: Mapping[str, int]) -> bool | None:
    """Whether a counter that differs is worse; None if it is of the set-up, or if something moved. Pure."""
    period, *_, kind, unit = counter.split(".")
    if period == "setup":
        return None
    alike = [name for name in olds.keys() | news.keys() if name.startswith(period) and name.endswith(f".{kind}.{unit}")]
    more = news.get(counter, 0) - olds.get(counter, 0)
    total = sum(news.get(name, 0) - olds.get(name, 0) for name in alike)
    return None if more * total <= 0 else more > 0
