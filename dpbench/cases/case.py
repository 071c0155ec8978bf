"""A case: one cell of the grid, or its single-device baseline, with a stable id."""

from math import ceil
from typing import Self

from pydantic import Field

from dpbench.cases.names import Data, Dtype, Mode, are_shared, format_devices
from dpbench.cases.variants import VariantId, VariantName
from dpbench.text.validated import Count, Frozen, Items

MOST_STEPS_PER_SAMPLE = 100_000


class Case(Frozen):
    """Equal cases have equal ids, on every machine and in every version.

    `workload` is ``family/size`` or a user's ``package.module:factory``. `batch` is global: items per step, all lanes
    together. `devices` has one entry per lane. `threads` are the intra-op threads that all lanes share. With several
    `machines`, each has as many of the lanes, in order, and its own `threads`.
    """

    variant: VariantId
    workload: str
    batch: Items
    devices: tuple[str, ...] = Field(min_length=1)
    mode: Mode = Mode.TRAIN
    dtype: Dtype = Dtype.FLOAT32
    data: Data = Data.RANDOM
    threads: Items
    seed: Count = 0
    steps_per_sample: int = Field(default=1, ge=1, le=MOST_STEPS_PER_SAMPLE)
    machines: Items = 1

    def of(self, variant: str) -> Self:
        return self.model_copy(update={"variant": VariantId(variant)})

    @property
    def id(self) -> str:
        """Such as ``tuned|mlp/small|b64|cpu*2|train|float32|random|t2|s0``."""
        return f"{self.variant}|{self.setting}"

    @property
    def setting(self) -> str:
        """The id without the variant; cases of one setting are compared.

        It ends with ``|k20`` if a sample has 20 steps, and with ``|m2`` if the lanes are on two machines. One step and
        one machine add nothing, so ids of older records stay valid.
        """
        steps = "" if self.steps_per_sample == 1 else f"|k{self.steps_per_sample}"
        machines = "" if self.machines == 1 else f"|m{self.machines}"
        return (
            f"{self.workload}|b{self.batch}|{format_devices(self.devices)}|{self.mode}|{self.dtype}"
            f"|{self.data}|t{self.threads}|s{self.seed}{steps}{machines}"
        )

    @property
    def lanes_of_a_machine(self) -> tuple[str, ...]:
        """The lanes of the other machines have the same names."""
        return self.devices[: len(self.devices) // self.machines]


def on_one_device(case: Case) -> Case:
    """`single` with the whole batch on the first device: the same computation without parallelism."""
    update = {"variant": VariantId(VariantName.SINGLE), "devices": case.devices[:1], "machines": 1}
    return case.model_copy(update=update)


def single_device_baseline(case: Case) -> Case:
    """The `single` case whose speed is 100 % for `case`.

    If each lane has its own device, it computes the largest chunk alone, and no data-parallel scheme is faster. If
    lanes share a device there is no such limit, and it computes the whole batch.
    """
    single = on_one_device(case)
    if are_shared(case.lanes_of_a_machine):
        return single
    return single.model_copy(update={"batch": ceil(case.batch / len(case.devices))})
