"""Record what a projection needs, and project all variants on a machine."""

from collections.abc import Mapping, Sequence

from dpbench.cases.variants import VariantId, VariantName
from dpbench.processes.record_step import record_step
from dpbench.processes.ways import Ways
from dpbench.projection.affine import AffineStep, NotAffineError
from dpbench.projection.described.machine import Machine
from dpbench.projection.model_error import model_error
from dpbench.projection.project import Projection, limited_by_loader
from dpbench.projection.project import project as project_tasks
from dpbench.projection.ranking import MachineProjection, advice, with_speed_up
from dpbench.projection.replay.build import build
from dpbench.projection.replay.draws import Draws, draw
from dpbench.projection.rules import ProjectionError, check_batch, facts_of, rule_of, why_not

SINGLE = VariantId(VariantName.SINGLE)
ITEMS_PER_DEVICE = 32
STEPS_AHEAD = 3
Recorded = Mapping[tuple[VariantId, int], AffineStep]
"""The steps by variant and number of lanes; a variant that is projected from one device's share has one lane."""


def record_all(
    workload: str, variants: Sequence[VariantId], machines: Sequence[Machine], ways: Sequence[Ways] = ()
) -> Recorded:
    """Return all steps that the projections need. Raise ReportedError if one cannot be recorded.

    `ways` are those of `ways_of`, one for each machine; without them, each variant is recorded as it is.
    """
    wanted = [
        (way, lanes_of(way, machine))
        for machine, own in zip(machines, ways or [{}] * len(machines), strict=True)
        for variant in _needed(variants, machine)
        for way in own.get(variant, [variant])
    ]
    try:
        return {(variant, lanes): record_step(workload, variant, lanes) for variant, lanes in dict.fromkeys(wanted)}
    except NotAffineError as error:
        text = f"workload: {workload!r}: {error}; allowed: a step that is the same at each batch"
        raise ProjectionError(text) from None


def _needed(variants: Sequence[VariantId], machine: Machine) -> list[VariantId]:
    return [SINGLE, *(variant for variant in variants if why_not(variant, machine) is None)]


def lanes_of(variant: VariantId, machine: Machine) -> int:
    """Return on how many lanes a variant is recorded for a machine."""
    return 1 if rule_of(variant).on_one_device else machine.devices


def project_machine(
    machine: Machine,
    recorded: Recorded,
    workload: str,
    variants: Sequence[VariantId],
    *,
    ways: Ways | None = None,
    batch: int | None = None,
    math: str = "default",
    ahead: bool = False,
    loader: float | None = None,
) -> MachineProjection:
    """Return the projections of all variants on a machine. Raise ProjectionError for a batch that does not fit.

    A variant with several `ways` gets the projection of the one with the shortest step. The wrapper compares forwards
    alone, so it may take another.
    """
    size = machine.devices * ITEMS_PER_DEVICE if batch is None else batch
    check_batch(size, machine.devices)
    projector = _Projector(machine, recorded, math, STEPS_AHEAD if ahead else 1, loader)
    single = projector.project(SINGLE, size)
    found: dict[VariantId, Projection | str] = {}
    chosen: dict[VariantId, VariantId] = {}
    for variant in variants:
        reason = why_not(variant, machine)
        if reason is not None or variant == SINGLE:
            found[variant] = reason or single
            continue
        own = {way: projector.project(way, size) for way in (ways or {}).get(variant, [variant])}
        chosen[variant] = min(own, key=lambda way: own[way].step_time_s.mid)
        found[variant] = own[chosen[variant]]
    rows = with_speed_up(found, single)
    larger = [row for row in rows if row.projection is not None and row.variant.name is not VariantName.SINGLE]
    best = min(larger, key=lambda row: row.projection.step_time_s.mid if row.projection else 0.0, default=None)
    gain = None
    if best is not None and best.projection is not None:
        gain = 2 * best.projection.step_time_s.mid / projector.project(chosen[best.variant], 2 * size).step_time_s.mid
    notes = tuple(dict.fromkeys([*machine.notes, *projector.notes, *_way_notes(chosen)]))
    return MachineProjection(machine.name, workload, size, math, rows, advice(rows, machine.name, gain), notes)


def _way_notes(chosen: Mapping[VariantId, VariantId]) -> list[str]:
    return [
        f"{variant}: projected as {way}; the wrapper's rules choose this route, and this dispatch has the shortest "
        "step; the wrapper itself compares forwards alone"
        for variant, way in chosen.items()
        if way != variant
    ]


class _Projector:
    def __init__(self, machine: Machine, recorded: Recorded, math: str, steps: int, loader: float | None) -> None:
        self._machine, self._recorded, self._math, self._steps = machine, recorded, math, steps
        self._loader = loader
        self._draws: Draws = draw(machine.parameters())
        self.notes: list[str] = []

    def project(self, variant: VariantId, batch: int) -> Projection:
        machine, rule = self._machine, rule_of(variant)
        step = self._recorded[variant, lanes_of(variant, machine)]
        if step.not_affine:
            self.notes.append(f"{variant}: not affine in the batch: {', '.join(step.not_affine)}")
        share = batch // machine.devices if rule.on_one_device else batch
        recording, events = rule.change(step.at(share))
        tasks = build(events, machine, facts_of(recording, rule), self._steps)
        is_single = variant == SINGLE
        devices, size = (1, share) if is_single else (machine.devices, batch)
        found = project_tasks(
            tasks, machine, self._draws, devices=devices, batch=size, math=self._math, error=model_error()
        )
        return found if self._loader is None else limited_by_loader(found, self._loader)
