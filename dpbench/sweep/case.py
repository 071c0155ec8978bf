"""One cell of the grid and its stable id."""
# MERGED-DOC sweep.single_device_baseline: """What a case's time is held against: one device alone."""

from math import ceil
from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from dpbench.sweep.devices import are_shared, format_devices
from dpbench.sweep.names import Data, Dtype, Mode
from dpbench.sweep.variants import VariantId, VariantName


class Case(BaseModel):
    """What one measurement is of. Equal cases have equal ids, on every machine and in every version.

    `workload` is ``family/size`` or a user's ``package.module:factory``. `batch` is global: items per
    step over all lanes. `devices` has one entry per lane. `threads` is the total of intra-op threads
    the step may use, the same for every variant it is compared with.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    variant: VariantId
    workload: str
    batch: int = Field(ge=1)
    devices: tuple[str, ...] = Field(min_length=1)
    mode: Mode = Mode.TRAIN
    dtype: Dtype = Dtype.FLOAT32
    data: Data = Data.RANDOM
    threads: int = Field(ge=1)
    seed: int = 0

    def of(self, variant: str) -> Self:
        """Return the case of another variant in this setting."""
        return self.model_copy(update={"variant": VariantId(variant)})

    @property
    def id(self) -> str:
        return f"{self.variant}|{self.setting}"

    @property
    def setting(self) -> str:
        """Everything but the variant: cases with one setting may be compared."""
        return (
            f"{self.workload}|b{self.batch}|{format_devices(self.devices)}|{self.mode}|{self.dtype}"
            f"|{self.data}|t{self.threads}|s{self.seed}"
        )


def on_one_device(case: Case) -> Case:
    """`single` with the whole batch on the first device: the same computation without any parallelism."""
    return case.model_copy(update={"variant": VariantId(VariantName.SINGLE), "devices": case.devices[:1]})


def single_device_baseline(case: Case) -> Case:
    """The `single` case of which `case` is a percentage.

    Where each lane has its own device it is the largest chunk alone: no data-parallel scheme is faster, so the
    percentage is of a limit. Where lanes share a device there is no such limit, and it is the whole batch.
    """
    single = on_one_device(case)
    if are_shared(case.devices):
        return single
    return single.model_copy(update={"batch": ceil(case.batch / len(case.devices))})
