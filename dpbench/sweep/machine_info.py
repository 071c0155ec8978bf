"""What a machine has, as plain facts: planning needs these and no torch."""

from pydantic import BaseModel, ConfigDict


class Accelerator(BaseModel):
    """A device that torch can use."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    device: str
    name: str
    memory_bytes: int


class MachineInfo(BaseModel):
    """The answer of the probe child. `torch` is None where it does not import; `torch_error` says why, or why an
    installed torch can use no GPU.

    `nvml_gpus` are the names of the GPUs that the driver sees, whether or not torch can use them;
    `driver` is NVIDIA's version, `nccl` that of torch, both None where there is no such thing;
    `workload_errors` has one entry for each user factory asked about, None where it loads.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    python: str
    torch: str | None
    torch_error: str | None = None
    cpu_model: str
    cores: int
    memory_bytes: int
    accelerators: tuple[Accelerator, ...] = ()
    backends: tuple[str, ...] = ()
    nvml_gpus: tuple[str, ...] = ()
    nvml_error: str | None = None
    driver: str | None = None
    nccl: str | None = None
    workload_errors: dict[str, str | None] = {}

    @property
    def devices(self) -> tuple[str, ...]:
        return ("cpu", *(a.device for a in self.accelerators))

    @property
    def unusable_gpus(self) -> tuple[str, ...]:
        """GPUs that NVML sees while torch can use none."""
        return () if self.accelerators else self.nvml_gpus
