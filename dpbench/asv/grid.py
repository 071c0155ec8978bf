"""The fixed grid whose history is kept from commit to commit, and what of it this machine can measure. Pure.

asv finds earlier results by the text of their parameters, so the lists are the same on every machine; what a machine lacks is
skipped, with its reason. A lane has an accelerator of its own where the machine has as many; two lanes share the only one,
and without any accelerator lanes share the CPU.
"""

from collections.abc import Sequence

from dpbench.sweep.case import Case
from dpbench.sweep.machine_info import MachineInfo
from dpbench.sweep.supports import why_unsupported
from dpbench.sweep.variants import VariantId, VariantName

VARIANTS = (VariantName.TORCH_DP, VariantName.NAIVE, VariantName.TUNED, VariantName.DDP)
WORKLOADS = ("mlp/small", "transformer/tiny", "convnet/base", "transformer/small")
BATCHES = (64, 256)
LANES = (2, 4, 8)

STEP_TIME = "step_time.StepTime.track_step_time"
"""The benchmark of the asv suite that has step times over this grid."""
VERSION = "1"
"""Of what it measures; asv compares no results of different versions."""
MOST_SAMPLES = 64
"""Kept of one process: neighbouring steps are alike, and asv's test takes each sample for news."""

_CPU_WORKLOADS = ("mlp/tiny", "mlp/small", "transformer/tiny")
_CPU_MOST_ITEMS = 64


class NotOnThisMachineError(NotImplementedError):
    """The text is the reason; for asv an error of this kind in `setup` is a combination to skip."""


def case_of(variant: str, workload: str, batch: int, lanes: int, machine: MachineInfo) -> Case:
    """The case of a point of the grid. Raises NotOnThisMachineError."""
    if machine.torch is None or machine.unusable_gpus:
        raise NotOnThisMachineError(machine.torch_error or "this torch can use none of the machine's GPUs")
    accelerators = [accelerator.device for accelerator in machine.accelerators]
    devices = place(lanes, accelerators, machine.cores)
    if not accelerators and (workload not in _CPU_WORKLOADS or batch > _CPU_MOST_ITEMS):
        raise NotOnThisMachineError(f"{workload} with batch {batch} is for accelerators; this machine has none")
    case = Case(variant=VariantId(variant), workload=workload, batch=batch, devices=devices, threads=machine.cores)
    if (reason := why_unsupported(case, machine)) is not None:
        raise NotOnThisMachineError(reason)
    return case


def place(lanes: int, accelerators: Sequence[str], cores: int) -> tuple[str, ...]:
    """The device of each lane. Raises NotOnThisMachineError."""
    if not accelerators:
        if lanes > max(2, cores):
            raise NotOnThisMachineError(f"{lanes} lanes are more than the {cores} cores")
        return ("cpu",) * lanes
    if len(accelerators) == 1 and lanes == 2:
        return (accelerators[0],) * 2
    if lanes > len(accelerators):
        raise NotOnThisMachineError(f"{lanes} lanes are more than the {len(accelerators)} accelerators")
    return tuple(accelerators[:lanes])


def grid() -> tuple[tuple[object, ...], ...]:
    """The values of each parameter, in the order of the benchmark's."""
    return tuple(map(str, VARIANTS)), WORKLOADS, BATCHES, LANES


def point_of(case: Case, gpus: int, cores: int) -> tuple[str, str, int, int] | None:
    """Where in the grid a case stands that was measured on a machine with so many GPUs; None where it does not."""
    kind = case.devices[0].partition(":")[0]
    accelerators = [f"{kind}:{i}" for i in range(gpus)] if kind != "cpu" else []
    point = (str(case.variant), case.workload, case.batch, len(case.devices))
    if any(value not in values for value, values in zip(point, grid(), strict=True)):
        return None
    try:
        devices = place(len(case.devices), accelerators, cores)
    except NotOnThisMachineError:
        return None
    same = Case(variant=case.variant, workload=case.workload, batch=case.batch, devices=devices, threads=cores)
    return point if same == case else None


def spaced(samples_s: Sequence[float]) -> tuple[float, ...]:
    """At most `MOST_SAMPLES` of one process, evenly spaced."""
    return tuple(samples_s[:: -(-len(samples_s) // MOST_SAMPLES)])
