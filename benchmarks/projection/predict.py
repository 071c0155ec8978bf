"""Predict the published steps on several devices from recorded steps, with one factor from one device. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from benchmarks.projection.calibrate import Calibration, calibrated
from benchmarks.projection.published import as_published
from benchmarks.projection.row_file import Case, Series, Table
from benchmarks.projection.subset import first_devices
from dpbench.cases.variants import VariantId, VariantName
from dpbench.projection.affine import AffineStep
from dpbench.projection.ddp import MIB, Buckets, ddp_events
from dpbench.projection.described.machine import Machine
from dpbench.projection.described.machine_file import load_machine
from dpbench.projection.project import Projection, limited_by_loader, project
from dpbench.projection.replay.build import build
from dpbench.projection.replay.draws import Draws, draw
from dpbench.projection.replay.events import AnyEvent
from dpbench.projection.replay.tasks import Tasks
from dpbench.projection.rules import facts_of, rule_of
from dpbench.records.recording import Copy

STEPS_AHEAD = 3
StepOf = Callable[[str, VariantId, int], AffineStep]
"""Returns the recorded step of a workload, a variant and a number of lanes."""
SINGLE = VariantId(VariantName.SINGLE)


@dataclass(frozen=True)
class Prediction:
    """A case, predicted. All times are of a step, in seconds.

    `found` has the factor of its own model. `by_first` has that of its table's first model on this kind of device, and
    `alone` none. `perfect_s` is the step of one device; `naive_s` adds the counted bytes over the bandwidth.
    """

    series: Series
    case: Case
    devices: int
    found: Projection
    by_first: Projection
    alone: Projection
    one_device: Projection
    calibration: Calibration | None
    perfect_s: float
    naive_s: float
    not_affine: tuple[str, ...]


def recorded(workload: str, variant: VariantId, devices: int) -> tuple[str, VariantId, int]:
    """Return the workload, the variant and the number of lanes whose recording a projection on `devices` needs."""
    return (workload, SINGLE, 1) if rule_of(variant).on_one_device else (workload, variant, devices)


def recordings_of(table: Table) -> set[tuple[str, VariantId, int]]:
    """Return all recordings that the cases of a table need."""
    cases = [(series.workload, case) for series in table.series for case in series.cases]
    found = {recorded(name, VariantId(VariantName(case.variant)), machine_of(case).devices) for name, case in cases}
    return found | {(name, SINGLE, 1) for name, _ in cases}


@cache
def _whole(name: str) -> Machine:
    return load_machine(name)


def machine_of(case: Case) -> Machine:
    """Return the machine, with only the devices that the case uses."""
    machine = _whole(case.machine)
    return machine if case.devices is None else first_devices(machine, case.devices)


class Predictor:
    """Predicts the cases of one table."""

    def __init__(self, table: Table, step_of: StepOf) -> None:
        self._table, self._step_of = table, step_of
        self._calibrations: dict[tuple[str, str], Calibration | None] = {}

    def predict(self, series: Series, case: Case) -> Prediction:
        """Return the prediction of a case of this table."""
        table, machine = self._table, machine_of(case)
        variant = VariantId(VariantName(case.variant))
        tasks, copied_bytes = self._tasks(series, variant, machine)
        own = self._calibration(series, machine)
        first = self._calibration(self._first_on(machine), machine)
        plain = draw(machine.parameters())
        batch = series.items * machine.devices

        def on(draws: Draws) -> Projection:
            found = project(tasks, machine, draws, devices=machine.devices, batch=batch, math=table.math)
            limit = case.loader_items_per_s
            return found if limit is None else limited_by_loader(found, limit)

        single, _ = self._tasks(series, SINGLE, machine)
        alone = on(plain)
        one_device = project(single, machine, plain, devices=1, batch=series.items, math=table.math)
        one_s = one_device.step_time_s.mid if series.one_device_ms is None else series.one_device_ms / 1e3
        found = alone if own is None else on(own.draws)
        return Prediction(
            series=series,
            case=case,
            devices=machine.devices,
            found=found,
            by_first=found if first is own or first is None else on(first.draws),
            alone=alone,
            one_device=one_device,
            calibration=own,
            perfect_s=one_s,
            naive_s=one_s + self._naive_s(series, variant, machine, copied_bytes),
            not_affine=self._step_of(*recorded(series.workload, variant, machine.devices)).not_affine,
        )

    def _first_on(self, machine: Machine) -> Series:
        """Return the table's first model that was measured on this kind of device."""
        device = machine.device.name
        return next(s for s in self._table.series if any(machine_of(case).device.name == device for case in s.cases))

    def _calibration(self, series: Series, machine: Machine) -> Calibration | None:
        key = series.model, machine.name
        if key not in self._calibrations:
            made = None
            if series.one_device_ms is not None:
                single, _ = self._tasks(series, SINGLE, machine)
                draws = draw(machine.parameters())
                made = calibrated(draws, single, machine, self._table.math, series.one_device_ms / 1e3)
            self._calibrations[key] = made
        return self._calibrations[key]

    def _tasks(self, series: Series, variant: VariantId, machine: Machine) -> tuple[Tasks, float]:
        """Return the tasks, and the bytes that the recorded step copies between devices."""
        rule = rule_of(variant)
        _, _, lanes = key = recorded(series.workload, variant, machine.devices)
        step = self._step_of(*key)
        recording = as_published(step.at(series.items * lanes), self._table, series)
        events: list[AnyEvent]
        if variant.name is VariantName.DDP:
            recording, events = ddp_events(recording, Buckets(bucket_bytes=series.bucket_mib * MIB))
        else:
            recording, found = rule.change(recording)
            events = list(found)
        facts = replace(facts_of(recording, rule), has_foreach=self._table.has_foreach)
        if not series.optimiser:
            facts = replace(facts, parameters=0)
        copies = (event for event in recording.events if isinstance(event, Copy))
        copied = sum(copy.size_bytes for copy in copies if None not in (copy.source, copy.destination))
        return build(events, machine, facts, STEPS_AHEAD if self._table.ahead else 1), copied

    def _naive_s(self, series: Series, variant: VariantId, machine: Machine, copied_bytes: float) -> float:
        """Return the counted bytes over the bandwidth of the ring, or of the link from device 0 to device 1."""
        n = machine.devices
        if variant.name is not VariantName.DDP:
            by_name = {name: machine.kinds[kind].bandwidth.mid for name, kind in machine.links.items()}
            return copied_bytes / min(by_name[link] for link in machine.routes[0, 1])
        model = self._step_of(series.workload, SINGLE, 1).first.model
        assert model is not None
        assert machine.ring is not None
        return 2 * (n - 1) / n * model.parameter_bytes / machine.ring.bus_bandwidth.mid
