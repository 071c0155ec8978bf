"""What `dpbench doctor --machine-file` measures: the messages between the parent and its child.

All times are in seconds. A series has one entry for each repeat. An empty series was not measured.
"""

from pydantic import BaseModel, ConfigDict

from dpbench.projection.described.machine import HostCost, Kind

Series = tuple[float, ...]


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class MeasureRequest(_Message):
    """Request to measure this machine's accelerators. The response is `Measurements`."""

    with_collectives: bool = True


class TimedOperator(_Message):
    """An operator of one shape on the first device.

    `bytes` are read and written together. `number_format` is that of its products: ``float32`` or ``tf32``. A large one
    shows what the device reaches: its FLOP/s or its memory bandwidth.
    """

    kind: Kind
    shape: str
    number_format: str = "float32"
    flops: float = 0.0
    bytes: float
    is_large: bool = False
    seconds: Series


class HostCopies(_Message):
    """Copies of `Measurements.copy_bytes` between pinned memory and a device. `latency_s` is a small copy's time."""

    device: int
    to_device_s: Series
    from_device_s: Series
    latency_s: Series


class PairCopies(_Message):
    """Copies of `Measurements.copy_bytes` from a device to another."""

    source: int
    destination: int
    is_peer: bool
    seconds: Series
    latency_s: Series


class Together(_Message):
    """Equal copies, first one after the other, then at once.

    `alone_s` has the time of the slowest of them alone, `together_s` that of all at once.
    """

    devices: tuple[int, ...]
    alone_s: Series
    together_s: Series


class Slope(_Message):
    """The same work with `short` and with `long` parts, taken in turn."""

    short: int
    long: int
    short_s: Series
    long_s: Series


class Collectives(_Message):
    """NCCL in one process, among all devices: `large_bytes` and a few bytes on each. `host_s` is the time of a call."""

    large_bytes: int
    all_reduce_s: Series = ()
    broadcast_s: Series = ()
    small_s: Series = ()
    host_s: Series = ()


class Measurements(_Message):
    """Response to `MeasureRequest`.

    The tuples `names`, `memory_bytes`, `numa_nodes` and `same_work_s` have an entry for each device. `links` has
    NVML's entries, such as ``0-1 NV18``. `to_all` are copies from the host to pairs and to all devices at once, and
    `from_first` copies from the first device to all others at once. `forward_module_s` is an operator called by its
    module, and `forward_builtin_s` the operator alone. `failures` has what could not be measured, with the reason.
    """

    date: str
    torch: str
    names: tuple[str, ...]
    cpu_model: str
    capability: tuple[int, int]
    memory_bytes: tuple[int, ...]
    numa_nodes: tuple[int | None, ...]
    links: tuple[str, ...] = ()
    copy_bytes: int
    operators: tuple[TimedOperator, ...] = ()
    gap_s: Series = ()
    same_work_s: tuple[Series, ...] = ()
    host_copies: tuple[HostCopies, ...] = ()
    pairs: tuple[PairCopies, ...] = ()
    to_all: tuple[Together, ...] = ()
    from_first: Together | None = None
    collectives: Collectives | None = None
    calls_s: dict[HostCost, Series] = {}
    forward_module_s: Series = ()
    forward_builtin_s: Series = ()
    slopes: dict[HostCost, Slope] = {}
    failures: dict[str, str] = {}
