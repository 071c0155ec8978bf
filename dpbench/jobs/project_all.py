"""Variants on a described machine: the ways that the wrapper may choose there, their counts, and the sums.

tuned ──> tuned[dispatch=sequence,route=chain]         the wrapper's rules give the route for the machine's links,
          tuned[dispatch=threads,route=chain]          whether it passes buckets on whole, and the ways of dispatch that
          tuned[dispatch=threads,route=chain]          it would measure
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dpbench.cases.variants import VariantId
from dpbench.engine.launch import Launcher, launch
from dpbench.engine.messages import AutoChoice, AutoChoices, AutoRequest, DescribedLinks
from dpbench.engine.task import Task
from dpbench.jobs.count_steps import count_steps
from dpbench.projection.choice import MachineProjection, advice, memory_notes, rows_of
from dpbench.projection.machine import Machine
from dpbench.projection.rules import IN_LANES, SINGLE, check_batch, lanes_of, why_not
from dpbench.projection.step_counts import AffineCounts
from dpbench.projection.step_sum import Setting, StepSum, sum_step

CHOOSER = Task("dpbench.jobs.ways_child", AutoChoices)
Ways = Mapping[VariantId, Sequence[VariantId]]
"""The ways of each variant that chooses; any other has itself alone."""
_TIMEOUT_S = 120.0
_STAGED = "staged."


def ways_of(
    variants: Sequence[VariantId], machines: Sequence[Machine], *, launch: Launcher = launch
) -> tuple[Ways, ...]:
    """No child is started if no variant chooses. Raise ChildError."""
    choosing = [[variant for variant in variants if _chooses(variant, machine)] for machine in machines]
    if not any(choosing):
        return tuple({} for _ in machines)
    request = AutoRequest(machines=tuple(map(described_links, machines)))
    ended = CHOOSER.run(request, _TIMEOUT_S, launch)
    choices = ended.answered("asking for the wrapper's choices failed").machines
    return tuple(
        {variant: _ways(variant, choice, machine) for variant in own_variants}
        for own_variants, choice, machine in zip(choosing, choices, machines, strict=True)
    )


def described_links(machine: Machine) -> DescribedLinks:
    """Devices are peers if no copy between them is staged in the host's memory."""
    return DescribedLinks(
        devices=machine.devices,
        peers=tuple(
            (source, destination)
            for (source, destination), names in machine.routes.items()
            if None not in (source, destination) and not any(name.startswith(_STAGED) for name in names)
        ),
        hops=tuple((*ends, tuple(names)) for ends, names in machine.routes.items()),
        links={name: (link.bandwidth.mid, link.latency.mid) for name, link in machine.links.items()},
    )


def _chooses(variant: VariantId, machine: Machine) -> bool:
    return (variant.chooses_dispatch or variant.chooses_route) and why_not(variant, machine) is None


def _ways(variant: VariantId, choice: AutoChoice, machine: Machine) -> list[VariantId]:
    # Two devices have one route, so its name would say nothing.
    route: dict[str, str | bool] = {"route": choice.route} if variant.chooses_route and machine.devices > 2 else {}
    if choice.whole_buckets and {**variant.values, **route}.get("route") == "chain":
        route["whole_buckets"] = True
    if not variant.chooses_dispatch or machine.devices == 1:
        return [variant.with_parameters(**route)]
    # Graphs are launched in sequence, whatever the dispatch.
    dispatches = ["sequence"] if variant.values.get("graphs") else choice.dispatches
    return [variant.with_parameters(dispatch=dispatch, **route) for dispatch in dispatches]


ITEMS_PER_DEVICE = 32
Counted = Mapping[tuple[VariantId, int], AffineCounts]


def count_for(
    workload: str, variants: Sequence[VariantId], machines: Sequence[Machine], ways: Sequence[Ways]
) -> Counted:
    """`ways` are those of `ways_of`, one for each machine. Raise ReportedError if a step cannot be counted."""
    steps = [
        (way, lanes_of(way, machine))
        for machine, own_ways in zip(machines, ways, strict=True)
        for variant in [SINGLE, *(other for other in variants if why_not(other, machine) is None)]
        for way in own_ways.get(variant, [variant])
    ]
    return count_steps(workload, list(dict.fromkeys(steps)))


def project_machine(
    machine: Machine,
    counted: Counted,
    workload: str,
    variants: Sequence[VariantId],
    *,
    ways: Ways,
    batch: int | None = None,
    setting: Setting,
) -> MachineProjection:
    """Raise WrongInputError for a batch that does not fit. Of several `ways` the one with the shortest step counts."""
    size = machine.devices * ITEMS_PER_DEVICE if batch is None else batch
    check_batch(size, machine.devices)
    projector = _Projector(machine, counted, setting)
    single = projector.sum(SINGLE, size)
    reasons = {variant: reason for variant in variants if (reason := why_not(variant, machine)) is not None}
    sums: dict[VariantId, StepSum] = {}
    chosen: dict[VariantId, VariantId] = {}
    for variant in variants:
        if variant == SINGLE:
            sums[variant] = single
        elif variant not in reasons:
            sum_by_way = {way: projector.sum(way, size) for way in ways.get(variant, [variant])}
            chosen[variant] = min(sum_by_way, key=lambda way: sum_by_way[way].step_s)
            sums[variant] = sum_by_way[chosen[variant]]
    rows = rows_of(sums, single, setting.fitted, knows_one=setting.one_device_s is not None)
    twice = None
    if chosen:
        way = chosen[min(chosen, key=lambda variant: sums[variant].step_s)]
        plain = _Projector(machine, counted, replace(setting, one_device_s=None))
        twice = plain.sum(way, 2 * size).step_s / plain.sum(way, size).step_s
    notes = [*machine.notes, *projector.notes(), *_way_notes(chosen), *memory_notes(rows)]
    text = advice(rows, machine.name, setting.fitted, twice)
    return MachineProjection(
        machine.name, workload, size, setting.math, rows, reasons, text, tuple(dict.fromkeys(notes))
    )


def _way_notes(chosen: Mapping[VariantId, VariantId]) -> list[str]:
    return [
        f"{variant}: projected as {way}; the wrapper's rules choose this route, and this dispatch has the shortest "
        "step; the wrapper itself compares forwards alone"
        for variant, way in chosen.items()
        if way != variant
    ]


class _Projector:
    def __init__(self, machine: Machine, counted: Counted, setting: Setting) -> None:
        self._machine, self._counted, self._setting = machine, counted, setting

    def sum(self, variant: VariantId, batch: int) -> StepSum:
        lanes, share = lanes_of(variant, self._machine), batch // self._machine.devices
        single = self._counted[SINGLE, 1].at(share)
        counts = self._counted[variant, lanes].at(batch) if variant.name in IN_LANES else single
        return sum_step(variant, counts, single, self._machine, self._setting)

    def notes(self) -> list[str]:
        off = [(variant, counts.not_affine) for (variant, _), counts in self._counted.items() if counts.not_affine]
        notes = [f"{variant}: not affine in the batch: {', '.join(names[:3])}" for variant, names in off]
        if self._setting.math == "bf16":
            notes.append("bf16: no published step tests autocast, and the memory is that of float32")
            if "bfloat16" not in self._machine.device.peak:
                notes.append(f"bf16: {self._machine.device.name} has no peak for it; float32 is taken")
        return notes
