"""The fixed grid that asv follows, and the points that a machine can measure. Pure.

asv finds earlier results by the text of their parameters. So the lists are the same on every machine, and points that
it cannot measure are skipped with a reason.
"""

import os
from collections.abc import Sequence

from dpbench.cases.case import Case
from dpbench.cases.machine_info import MachineInfo
from dpbench.cases.names import Dtype
from dpbench.cases.supports import why_unsupported
from dpbench.cases.variants import VariantId, VariantName, split_list
from dpbench.text.validated import one_of

VARIANTS = (VariantName.TORCH_DP, VariantName.NAIVE, VariantName.TUNED, VariantName.DDP)
MORE_VARIANTS = "DPBENCH_VARIANTS"
"""The environment variable with variants that are measured too, such as ``my_module:wrap``."""
MORE_DTYPES = "DPBENCH_DTYPES"
"""The environment variable with further precisions. The workloads are repeated, as ``mlp/small autocast-bfloat16``."""
WORKLOADS = ("mlp/small", "transformer/tiny", "convnet/base", "transformer/small")
BATCHES = (64, 256)
LANES = (2, 4, 8)

VERSION = "1"
"""asv does not compare results of different versions."""
MOST_SAMPLES = 64
"""Of one process. Successive steps are alike, but asv's test takes samples as independent."""

_CPU_WORKLOADS = ("mlp/tiny", "mlp/small", "transformer/tiny")
_CPU_MOST_ITEMS = 64


class NotOnThisMachineError(NotImplementedError):
    """asv skips a combination of parameters if `setup` raises NotImplementedError."""


def case_of(variant: str, workload: str, batch: int, lanes: int, machine: MachineInfo) -> Case:
    """Raises NotOnThisMachineError."""
    if machine.torch is None or machine.unusable_gpus():
        raise NotOnThisMachineError(machine.torch_error or "this torch can use none of the machine's GPUs")
    accelerators = [accelerator.device for accelerator in machine.accelerators]
    devices = place(lanes, accelerators, machine.cores)
    workload, _, dtype = workload.partition(" ")
    if not accelerators and (workload not in _CPU_WORKLOADS or batch > _CPU_MOST_ITEMS):
        raise NotOnThisMachineError(f"{workload} with batch {batch} is for accelerators; this machine has none")
    case = Case(
        variant=VariantId(variant),
        workload=workload,
        batch=batch,
        devices=devices,
        threads=machine.cores,
        dtype=Dtype(dtype or Dtype.FLOAT32),
    )
    if (reason := why_unsupported(case, machine)) is not None:
        raise NotOnThisMachineError(reason)
    return case


def place(lanes: int, accelerators: Sequence[str], cores: int) -> tuple[str, ...]:
    """Two lanes share a single accelerator; without one, lanes share the CPU. Raises NotOnThisMachineError."""
    if not accelerators:
        if lanes > max(2, cores):
            raise NotOnThisMachineError(f"{lanes} lanes are more than the {cores} cores")
        return ("cpu",) * lanes
    if len(accelerators) == 1 and lanes == 2:
        return (accelerators[0],) * 2
    if lanes > len(accelerators):
        raise NotOnThisMachineError(f"{lanes} lanes are more than the {len(accelerators)} accelerators")
    return tuple(accelerators[:lanes])


def more_variants() -> tuple[VariantId, ...]:
    """Those of `MORE_VARIANTS`. Raises ValueError."""
    return tuple(map(VariantId, filter(None, split_list(os.environ.get(MORE_VARIANTS, "")))))


def workloads() -> tuple[str, ...]:
    """`WORKLOADS`, and those with `MORE_DTYPES`. Raises ValueError."""
    dtypes = list(filter(None, map(str.strip, os.environ.get(MORE_DTYPES, "").split(","))))
    if wrong := [dtype for dtype in dtypes if dtype not in list(Dtype)]:
        raise ValueError(f"{MORE_DTYPES}: {wrong[0]!r} is no dtype; allowed: {one_of(Dtype)}")
    return (*WORKLOADS, *(f"{workload} {dtype}" for dtype in dtypes for workload in WORKLOADS))


def grid() -> tuple[tuple[object, ...], ...]:
    """The values of each parameter, in the order of the benchmark's parameters."""
    return tuple(dict.fromkeys(map(str, (*VARIANTS, *more_variants())))), workloads(), BATCHES, LANES


def spaced(samples_s: Sequence[float]) -> tuple[float, ...]:
    """At most `MOST_SAMPLES`, evenly spaced."""
    return tuple(samples_s[:: -(-len(samples_s) // MOST_SAMPLES)])
