"""Plan a sweep: the cases to measure, and the skipped ones with reasons."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random

from dpbench.cases.case import Case, on_one_device, single_device_baseline
from dpbench.cases.machine_info import MachineInfo
from dpbench.cases.names import is_factory, short_devices
from dpbench.cases.spec import Spec
from dpbench.cases.supports import why_unsupported
from dpbench.cases.variants import VariantId, VariantName
from dpbench.errors import WrongInputError
from dpbench.judge.least_samples import least_seconds


@dataclass(frozen=True)
class Skip:
    case: Case
    reason: str


@dataclass(frozen=True)
class Plan:
    """Each case once, in the order of the spec; `skipped` are its other cases."""

    cases: tuple[Case, ...]
    skipped: tuple[Skip, ...]


def plan(spec: Spec, machine: MachineInfo, machines: int = 1) -> Plan:
    """The grid of the spec, with the `single` cases that percentages need. Raise WrongInputError.

    With several `machines` like `machine`, the lanes of a device list are divided among them.
    """
    lanes = spec.devices or (default_lanes(machine),)
    threads = spec.threads or machine.cores
    _check(spec, lanes, threads, machine)
    cases: dict[Case, None] = {}
    skipped: dict[Case, str] = {}
    for group in _settings(spec, lanes, threads, machines):
        candidates = [_of_variant(group, variant) for variant in spec.variants]
        reasons = {case: why_unsupported(case, machine) for case in candidates}
        skipped.update({case: reason for case, reason in reasons.items() if reason is not None})
        runnable = [case for case, reason in reasons.items() if reason is None]
        cases.update(dict.fromkeys(runnable))
        if any(case.variant.name is not VariantName.SINGLE for case in runnable):
            baseline = single_device_baseline(group)
            cases.update(dict.fromkeys(baseline.of(case.variant.single) for case in runnable))
    return Plan(tuple(cases), tuple(Skip(case, reason) for case, reason in skipped.items()))


def default_lanes(machine: MachineInfo) -> tuple[str, ...]:
    devices = tuple(accelerator.device for accelerator in machine.accelerators)
    if devices:
        return devices if len(devices) > 1 else devices * 2
    return ("cpu",) * (2 if machine.cores < 4 else 4)


def round_order(cases: Sequence[Case], rounds: int, seed: int) -> list[tuple[int, Case]]:
    """Every case once a round, in random order, so that a drift of the machine hits all cases alike.

    The order depends on the seed and the round's number alone, so more rounds leave the first ones as they are.
    """
    order: list[tuple[int, Case]] = []
    for number in range(rounds):
        shuffled = list(cases)
        Random(f"{seed}:{number}").shuffle(shuffled)
        order += [(number, case) for case in shuffled]
    return order


def _settings(spec: Spec, lanes: Sequence[tuple[str, ...]], threads: int, machines: int) -> Iterator[Case]:
    """The variant of these cases does not matter."""
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
            steps_per_sample=spec.steps_per_sample,
            machines=machines,
        )


def _of_variant(setting: Case, variant: VariantId) -> Case:
    return (on_one_device(setting) if variant.name is VariantName.SINGLE else setting).of(variant)


def _check(spec: Spec, lanes: Sequence[tuple[str, ...]], threads: int, machine: MachineInfo) -> None:
    if machine.torch is None:
        raise WrongInputError(
            f"torch: does not import here ({machine.torch_error}); allowed: a Python with a working torch"
        )
    if threads > machine.cores:
        raise WrongInputError(f"threads: {threads} is more than this machine's cores; allowed: 1 to {machine.cores}")
    for workload in filter(is_factory, spec.workloads):
        error = machine.workload_errors.get(workload)
        if error is not None:
            raise WrongInputError(error if workload in error else f"workloads: {workload!r}: {error}")
    for devices in lanes:
        check_lanes(devices, min(spec.batch), machine)


def check_lanes(devices: tuple[str, ...], smallest_batch: int, machine: MachineInfo) -> None:
    """Raise WrongInputError if a device is missing, or if a lane would get no item of the batch."""
    text = short_devices(devices)
    for device in devices:
        if device not in machine.devices and not device.startswith("sim:"):
            hint = f", did you mean {text.replace('gpu', 'cuda')!r}?" if device.startswith("gpu:") else ""
            allowed = ", ".join(machine.devices)
            raise WrongInputError(f"devices: {device!r} of {text!r} is not on this machine{hint}; allowed: {allowed}")
    check_items(text, len(devices), smallest_batch)


def check_items(devices: str, lanes: int, smallest_batch: int) -> None:
    """Raise WrongInputError if a lane would get no item."""
    if smallest_batch < lanes:
        raise WrongInputError(
            f"batch: {smallest_batch} is less than one item for each of the {lanes} lanes of {devices!r}; "
            f"allowed: {lanes} and above"
        )


_STARTUP_GUESS_S = 3.0
_CASE_GUESS_S = 1.1
_RANKS_GUESS_S = 1.8
"""Seconds of a round, seconds of each case in it, and further seconds of a case with a process for each rank.

A sweep of 40 cases had about these (2-core Intel Xeon, torch 2.13.0, other work beside).
"""
CACHED_COMPILE_S = 6.0
"""Further seconds of a compiled case whose code is in Inductor's cache (same machine, mlp and transformer)."""


@dataclass(frozen=True)
class RoundCost:
    """`fixed_s` is beside the samples, and `least_s` has by case the seconds of the least samples."""

    fixed_s: float
    least_s: tuple[float, ...]

    @property
    def shortest_s(self) -> float:
        return self.fixed_s + sum(self.least_s)


def guessed_cost(cases: Sequence[Case]) -> RoundCost:
    ranked_s = _RANKS_GUESS_S * sum(case.variant.is_per_rank for case in cases)
    compiled_s = CACHED_COMPILE_S * sum(case.variant.compile_mode is not None for case in cases)
    fixed_s = _STARTUP_GUESS_S + _CASE_GUESS_S * len(cases) + ranked_s + compiled_s
    return RoundCost(fixed_s, tuple(least_seconds(case.devices) for case in cases))
