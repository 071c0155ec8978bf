"""Spec x machine -> the cases to measure, and why others are not. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random

from dpbench.errors import WrongInputError
from dpbench.sweep.case import Case, on_one_device, single_device_baseline
from dpbench.sweep.devices import format_devices
from dpbench.sweep.machine_info import MachineInfo
from dpbench.sweep.names import is_factory
from dpbench.sweep.spec import Spec
from dpbench.sweep.supports import why_unsupported
from dpbench.sweep.variants import VariantId, VariantName


class PlanError(WrongInputError):
    """One line: what this machine cannot do, naming the key, the value and what is allowed."""


@dataclass(frozen=True)
class Skip:
    case: Case
    reason: str


@dataclass(frozen=True)
class Plan:
    """Cases in the order of the spec, each once; `skipped` are the spec's other cases."""

    cases: tuple[Case, ...]
    skipped: tuple[Skip, ...]


def plan(spec: Spec, machine: MachineInfo) -> Plan:
    """The grid of the spec, and beside it the `single` cases that its percentages need. Raises PlanError."""
    lanes = spec.devices or (default_lanes(machine),)
    threads = spec.threads or machine.cores
    _check(spec, lanes, threads, machine)
    cases: dict[Case, None] = {}
    skipped: dict[Case, str] = {}
    for group in _settings(spec, lanes, threads):
        wanted = [_of_variant(group, variant) for variant in spec.variants]
        reasons = {case: why_unsupported(case, machine) for case in wanted}
        skipped.update({case: reason for case, reason in reasons.items() if reason is not None})
        runnable = [case for case, reason in reasons.items() if reason is None]
        cases.update(dict.fromkeys(runnable))
        if any(case.variant.name is not VariantName.SINGLE for case in runnable):
            cases[single_device_baseline(group)] = None
    return Plan(tuple(cases), tuple(Skip(case, reason) for case, reason in skipped.items()))


def default_lanes(machine: MachineInfo) -> tuple[str, ...]:
    """One lane on each of several accelerators, else two on the only one, else two or four on the CPU."""
    devices = tuple(accelerator.device for accelerator in machine.accelerators)
    if devices:
        return devices if len(devices) > 1 else devices * 2
    return ("cpu",) * (2 if machine.cores < 4 else 4)


def round_order(cases: Sequence[Case], rounds: int, seed: int) -> list[tuple[int, Case]]:
    """Every case once a round, each round in its own random order, so that drift of the machine hits all alike.

    A round's order depends on the seed and its number alone: asking for more rounds leaves the first ones as they are.
    """
    order: list[tuple[int, Case]] = []
    for number in range(rounds):
        shuffled = list(cases)
        Random(f"{seed}:{number}").shuffle(shuffled)
        order += [(number, case) for case in shuffled]
    return order


def _settings(spec: Spec, lanes: Sequence[tuple[str, ...]], threads: int) -> Iterator[Case]:
    """One case, of whatever variant, for each point of the grid."""
    for workload, mode, dtype, devices, batch in product(spec.workloads, spec.modes, spec.dtypes, lanes, spec.batch):
        yield Case(
            variant=VariantId(VariantName.NAIVE),
            workload=workload,
            batch=batch,
            devices=devices,
            mode=mode,
            dtype=dtype,
            data=spec.data,
            threads=threads,
            seed=spec.seed,
        )


def _of_variant(setting: Case, variant: VariantId) -> Case:
    return on_one_device(setting) if variant.name is VariantName.SINGLE else setting.of(variant)


def _check(spec: Spec, lanes: Sequence[tuple[str, ...]], threads: int, machine: MachineInfo) -> None:
    if machine.torch is None:
        raise PlanError(f"torch: does not import here ({machine.torch_error}); allowed: a Python with a working torch")
    if threads > machine.cores:
        raise PlanError(f"threads: {threads} is more than this machine's cores; allowed: 1 to {machine.cores}")
    for workload in filter(is_factory, spec.workloads):
        error = machine.workload_errors.get(workload)
        if error is not None:
            raise PlanError(error if workload in error else f"workloads: {workload!r}: {error}")
    for devices in lanes:
        check_lanes(devices, min(spec.batch), machine)


def check_lanes(devices: tuple[str, ...], smallest_batch: int, machine: MachineInfo) -> None:
    """Raises PlanError where the machine lacks one of the devices, or a batch would leave one without an item."""
    text = format_devices(devices)
    for device in devices:
        if device not in machine.devices and not device.startswith("sim:"):
            raise PlanError(
                f"devices: {device!r} of {text!r} is not on this machine; allowed: {', '.join(machine.devices)}"
            )
    if smallest_batch < len(devices):
        raise PlanError(
            f"batch: {smallest_batch} is less than one item for each of the {len(devices)} lanes of {text!r}; "
            f"allowed: {len(devices)} and above"
        )
