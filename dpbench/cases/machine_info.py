"""Facts about a machine, as plain data, so that planning needs no torch."""

from collections.abc import Sequence

from pydantic import Field

from dpbench.text.validated import Frozen


class Accelerator(Frozen):
    device: str
    name: str
    memory_bytes: int


class MachineInfo(Frozen):
    """`torch` is its version, None if it does not import. `torch_error` says why, or why torch can use no GPU.

    `nvml_gpus` are the GPUs that the driver sees. `workload_errors` has an entry for each user factory: an error, or
    None if it loads.
    """

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
    workload_errors: dict[str, str | None] = Field(default_factory=dict)

    @property
    def devices(self) -> tuple[str, ...]:
        return ("cpu", *(a.device for a in self.accelerators))

    def unusable_gpus(self, lists: Sequence[Sequence[str]] | None = None) -> tuple[str, ...]:
        """None are unusable if torch can use one, or if all `lists` are on the CPU."""
        is_on_cpu = lists is not None and all(device == "cpu" for lanes in lists for device in lanes)
        return () if self.accelerators or is_on_cpu else self.nvml_gpus

    def why_unusable(self, lists: Sequence[Sequence[str]] | None = None) -> str | None:
        """The reason why `unusable_gpus` has some, or None."""
        names, reason = ", ".join(self.unusable_gpus(lists)), self.torch_error or "torch gives no reason"
        return f"NVML sees {names}, but torch {self.torch} can use no GPU: {reason}" if names else None
