"""One cell of the grid and its stable id."""

from pydantic import BaseModel, ConfigDict, Field

from dpbench.sweep.devices import format_devices
from dpbench.sweep.names import Data, Dtype, Mode, VariantName


class Case(BaseModel):
    """What one measurement is of. Equal cases have equal ids, on every machine and in every version.

    `workload` is ``family/size`` or a user's ``package.module:factory``. `batch` is global: items per
    step over all lanes. `devices` has one entry per lane. `threads` is the total of intra-op threads
    the step may use, the same for every variant it is compared with.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    variant: VariantName
    workload: str
    batch: int = Field(ge=1)
    devices: tuple[str, ...] = Field(min_length=1)
    mode: Mode = Mode.TRAIN
    dtype: Dtype = Dtype.FLOAT32
    data: Data = Data.RANDOM
    threads: int = Field(ge=1)
    seed: int = 0

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
