"""The mid case of a recorded step on described machines, as one exact number for each: for comparing two commits."""

from collections.abc import Sequence

from dpbench.cases.case import Case
from dpbench.projection.described.machine_file import load_machine
from dpbench.projection.project import project
from dpbench.projection.replay.build import build
from dpbench.projection.replay.draws import draw
from dpbench.projection.rules import facts_of, rule_of
from dpbench.records.recording import Recording

_FEW = 8
"""Draws: the mid case needs none, and an interval of the others is not asked for."""


def projected_ns(recording: Recording, case: Case, machines: Sequence[str]) -> dict[str, int]:
    """Return the projected step time in nanoseconds by machine. Each has as many devices as the case has lanes."""
    rule = rule_of(case.variant)
    changed, events = rule.change(recording)
    found = {}
    for name in machines:
        machine = load_machine(name)
        tasks = build(events, machine, facts_of(changed, rule))
        draws = draw(machine.parameters(), size=_FEW)
        one = project(tasks, machine, draws, devices=len(case.devices), batch=case.batch, math="default")
        found[name] = round(1e9 * one.step_time_s.mid)
    return found
