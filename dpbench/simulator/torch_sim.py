"""The module ``torch.sim``, in the place of ``torch.cuda``.

Its `storage_id`, `storage_use_count` and `data_ptr` are additions: torch does not show a wrapper's storage.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

import torch

from dpbench.records.recording import HostCallName
from dpbench.simulator import autograd, current
from dpbench.simulator.simulation import running, the_simulation
from dpbench.simulator.streams import VectorClock
from dpbench.simulator.tensor import SimTensor

DeviceLike = torch.device | int | str | None
_PRIVATE_USE_1 = 20  # c10/core/DeviceType.h
_initialized = True  # `torch.utils.checkpoint` keeps the devices' random states only if this is true


def index_of(device: DeviceLike = None) -> int:
    """Raise ValueError for another device type, RuntimeError for a device that does not exist."""
    if device is None:
        return current.device()
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if device.type != "sim":
            raise ValueError(f"expected a sim device, got {device}")
        index = current.device() if device.index is None else device.index
    else:
        index = device
    count = the_simulation().devices
    if not 0 <= index < count:
        raise RuntimeError(
            f"device sim:{index} does not exist: the simulator was started with {count}, sim:0 to sim:{count - 1}"
        )
    return index


def is_available() -> bool:
    return running() is not None


def is_initialized() -> bool:
    return running() is not None


def _is_in_bad_fork() -> bool:
    return False


def device_count() -> int:
    simulation = running()
    return simulation.devices if simulation else 0


def current_device() -> int:
    return current.device()


def set_device(device: DeviceLike) -> None:
    current.set_device(index_of(device))


@contextmanager
def device(device: DeviceLike) -> Iterator[None]:
    """A negative index or None has no effect."""
    if device is None or (isinstance(device, int) and device < 0):
        yield
        return
    before = current.set_device(index_of(device))
    try:
        yield
    finally:
        current.set_device(before)


@dataclass(frozen=True)
class DeviceProperties:
    name: str
    total_memory: int
    multi_processor_count: int
    major: int
    minor: int


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    index_of(device)
    return DeviceProperties("simulated device", 1 << 40, 1, 0, 0)


def get_device_name(device: DeviceLike = None) -> str:
    return get_device_properties(device).name


def get_device_capability(device: DeviceLike = None) -> tuple[int, int]:
    return get_device_properties(device).major, get_device_properties(device).minor


def can_device_access_peer(device: DeviceLike, peer_device: DeviceLike) -> bool:
    """True with numbers only: a caller may test copies."""
    return index_of(device) != index_of(peer_device) and the_simulation().numbers


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.float16, torch.bfloat16]


class Event:
    def __init__(self, device: DeviceLike = None, *, enable_timing: bool = False, blocking: bool = False) -> None:
        self._reached: VectorClock | None = None
        self.device = None if device is None else torch.device("sim", index_of(device))
        self.enable_timing, self.blocking = enable_timing, blocking

    def record(self, stream: "torch.Stream | None" = None) -> None:
        """As in CUDA, an event stays with the device of its first record."""
        stream = stream or current_stream(self.device)
        if self.device is None:
            self.device = stream.device
        elif self.device != stream.device:
            raise RuntimeError(f"Event device {self.device} does not match recording stream's device {stream.device}.")
        the_simulation().host_call(HostCallName.EVENT_RECORD)
        self._reached = the_simulation().now(stream.stream_id)

    def wait(self, stream: "torch.Stream | None" = None) -> None:
        """An event that was never recorded has no effect."""
        the_simulation().host_call(HostCallName.STREAM_WAIT)
        if self._reached is not None:
            the_simulation().wait((stream or current_stream()).stream_id, self._reached)

    def synchronize(self) -> None:
        the_simulation().host_call(HostCallName.HOST_WAIT)
        if self._reached is not None:
            the_simulation().host_wait_for(self._reached)

    def query(self) -> bool:
        self.synchronize()
        return True

    def elapsed_time(self, end_event: "Event") -> float:
        raise NotImplementedError(f"the simulator measures no times, so none between {self} and {end_event}")


class Stream(torch.Stream):
    def __new__(cls, device: DeviceLike = None, priority: int = 0, *, stream_id: int | None = None) -> Self:
        index = index_of(device)
        identity = the_simulation().new_stream(index) if stream_id is None else stream_id
        self: Self = super().__new__(
            cls, stream_id=identity, device_index=index, device_type=_PRIVATE_USE_1, priority=priority
        )
        return self

    def wait_event(self, event: Event) -> None:  # type: ignore[override]
        event.wait(self)

    def wait_stream(self, stream: torch.Stream) -> None:
        the_simulation().host_call(HostCallName.EVENT_RECORD, HostCallName.STREAM_WAIT)
        the_simulation().wait_stream(self.stream_id, stream.stream_id)

    def record_event(self, event: Event | None = None) -> Event:  # type: ignore[override]
        event = event or Event()
        event.record(self)
        return event

    def synchronize(self) -> None:
        the_simulation().host_wait([self.stream_id])

    def query(self) -> bool:
        self.synchronize()
        return True

    def is_capturing(self) -> bool:
        return False

    def __enter__(self) -> Self:
        the_simulation().host_call(HostCallName.STREAM_SWITCH)
        current.enter_stream(self.device_index, self.stream_id)
        return self

    def __exit__(self, *_: object) -> None:
        current.leave_stream(self.device_index, self.stream_id)


def default_stream(device: DeviceLike = None) -> Stream:
    index = index_of(device)
    return Stream(index, stream_id=index)


def current_handle(device: int) -> int:
    """The stream's number, without a Python object."""
    the_simulation().host_call(HostCallName.HANDLE_LOOKUP)
    return autograd.current_stream(device)


def current_stream(device: DeviceLike = None) -> Stream:
    the_simulation().host_call(HostCallName.STREAM_LOOKUP)
    index = index_of(device)
    return Stream(index, stream_id=autograd.current_stream(index))


def set_stream(stream: torch.Stream) -> None:
    current.set_stream(stream.device_index, stream.stream_id)


@contextmanager
def stream(stream: torch.Stream | None) -> Iterator[None]:
    """None has no effect."""
    if stream is None:
        yield
        return
    with stream:
        yield


def synchronize(device: DeviceLike = None) -> None:
    simulation = the_simulation()
    index = index_of(device)
    simulation.host_wait(stream for stream, of in simulation.streams().items() if of == index)


def memory_allocated(device: DeviceLike = None) -> int:
    the_simulation().drain()
    return the_simulation().allocators[index_of(device)].allocated_bytes


def max_memory_allocated(device: DeviceLike = None) -> int:
    the_simulation().drain()
    return the_simulation().allocators[index_of(device)].peak_bytes


def memory_reserved(device: DeviceLike = None) -> int:
    return the_simulation().allocators[index_of(device)].reserved_bytes


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    the_simulation().drain()
    allocator = the_simulation().allocators[index_of(device)]
    allocator.peak_bytes = allocator.allocated_bytes


def empty_cache() -> None:
    """Note the call, because a real one takes long; the simulated memory is unlimited."""
    the_simulation().host_call(HostCallName.EMPTY_CACHE)


def manual_seed(seed: int) -> None:
    the_simulation().generators[current.device()].manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    for generator in the_simulation().generators:
        generator.manual_seed(seed)


def get_rng_state(device: DeviceLike = None) -> torch.Tensor:
    return the_simulation().generators[index_of(device)].get_state()


def set_rng_state(new_state: torch.Tensor, device: DeviceLike = None) -> None:
    the_simulation().generators[index_of(device)].set_state(new_state)


def _simulated(tensor: torch.Tensor) -> SimTensor:
    if not isinstance(tensor, SimTensor):
        raise TypeError(f"expected a tensor on a sim device, got one on {tensor.device}")
    return tensor


def storage_id(tensor: torch.Tensor) -> int:
    """A number that is equal for tensors that share a storage, and never used again."""
    return _simulated(tensor).storages[0].serial


def storage_use_count(tensor: torch.Tensor) -> int:
    return _simulated(tensor).storages[0].use_count


def data_ptr(tensor: torch.Tensor) -> int:
    return _simulated(tensor).data_ptr()
