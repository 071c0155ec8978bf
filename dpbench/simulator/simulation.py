"""The state of the simulation: device memory, the order of streams, running recordings."""

import itertools
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import torch

from dpbench.records.recording import (
    Allocate,
    Free,
    GradientReady,
    HostCall,
    HostCallName,
    HostWait,
    Mark,
    Recording,
    Wait,
)
from dpbench.simulator.memory.allocator import Allocator, MemoryBlock
from dpbench.simulator.memory.races import Launch, RaceError
from dpbench.simulator.memory.regions import Region
from dpbench.simulator.memory.storages import SimStorage, StorageTable
from dpbench.simulator.recorder import Recorder, thread_key
from dpbench.simulator.streams import StreamOrder, VectorClock

_HIDDEN = tuple(f"{Path(file).parent}{os.sep}" for file in (torch.__file__, __file__))
Access = tuple[SimStorage, Region]


class Simulation:
    """Methods take `lock`; torch's computations run outside it.

    An operation's tick in the vector clocks is the id of its event. The default stream of device i is stream i.
    """

    def __init__(self, devices: int, numbers: bool = True) -> None:
        self.devices = devices
        self.numbers = numbers
        self.raw_device = torch.device("cpu" if numbers else "meta")
        self.lock = threading.RLock()
        self.order = StreamOrder()
        self.allocators = [Allocator((index + 1) << 40, self.order) for index in range(devices)]
        self.storages = StorageTable()
        self.recorder = Recorder()
        self.generators = [torch.Generator().manual_seed(torch.initial_seed()) for _ in range(devices)]
        self._device_of_stream = list(range(devices))
        self._freed: deque[tuple[int, MemoryBlock]] = deque()
        self._serials = itertools.count(1)

    # Streams

    def new_stream(self, device: int) -> int:
        with self.lock:
            self._device_of_stream.append(device)
            return len(self._device_of_stream) - 1

    def device_of(self, stream: int) -> int:
        return self._device_of_stream[stream]

    def stream_name(self, stream: int) -> str:
        device = self._device_of_stream[stream]
        return f"sim:{device} default stream" if stream == device else f"sim:{device} stream {stream}"

    def now(self, stream: int) -> VectorClock:
        with self.lock:
            return self.order.now(stream)

    def wait(self, stream: int, clock: VectorClock) -> None:
        with self.lock:
            self.drain()  # blocks that are free by now do not wait for `clock`
            unfinished = self.order.unfinished(clock, stream)
            if unfinished and self.recorder.running:
                after = tuple(sorted(unfinished.values()))
                self.recorder.add(Wait(id=self.recorder.next_id(), stream=stream, after=after, thread=thread_key()))
            self.order.wait(stream, clock)

    def wait_stream(self, stream: int, other: int) -> None:
        if stream != other:
            self.wait(stream, self.now(other))

    def host_call(self, *names: HostCallName) -> None:
        if self.recorder.running:
            line = user_line()
            with self.lock:
                for name in names:
                    call = HostCall(id=self.recorder.next_id(), name=name, line=line, thread=thread_key())
                    self.recorder.add(call)

    def host_wait(self, streams: Iterable[int]) -> None:
        self.host_call(HostCallName.HOST_WAIT)
        for stream in streams:
            self.host_wait_for(self.now(stream))

    def host_wait_for(self, clock: VectorClock) -> None:
        with self.lock:
            unfinished = self.order.unfinished_for_host(clock)
            if unfinished and self.recorder.running:
                after = tuple(sorted(unfinished.values()))
                self.recorder.add(HostWait(id=self.recorder.next_id(), after=after, thread=thread_key()))
            self.order.host_wait(clock)

    def settle(self) -> None:
        """Let all work be over: after an error no wait orders it, so each later step would race with it."""
        with self.lock:
            for stream in self.streams():
                self.order.host_wait(self.order.now(stream))

    def streams(self) -> dict[int, int]:
        return dict(enumerate(self._device_of_stream))

    # Memory

    def new_storage(self, raw: torch.UntypedStorage, device: int, stream: int) -> SimStorage:
        """The caller holds the lock. Raise RaceError."""
        size = raw.nbytes()
        block = self._allocate(size, device, stream) if size else None
        storage = SimStorage(raw, device, block, serial=next(self._serials), forget=self._forget)
        self.storages.add(storage)
        return storage

    def grow(self, storage: SimStorage, stream: int) -> MemoryBlock | None:
        """Return the memory that the storage has left, if it has moved. Raise RaceError."""
        size, before = storage.raw.nbytes(), storage.block
        if size <= (before.size if before else 0):
            return None
        storage.block = self._allocate(size, storage.device, stream)
        return before

    def leave(self, device: int, block: MemoryBlock, launch: Launch) -> None:
        """Free the block after `launch`, which copies it."""
        block.shadow.read(block.region, launch)
        self._freed.append((device, block))

    def _allocate(self, size: int, device: int, stream: int) -> MemoryBlock:
        """Raise RaceError if another stream may still use the memory."""
        allocator = self.allocators[device]
        use = allocator.use_after_free(size, stream)
        if use is not None:
            earlier, is_write = use
            name = self.stream_name(stream)
            raise RaceError(
                f"{'write' if is_write else 'read'}-write race: an allocation on {name} at {user_line()} may get the "
                f"freed memory of {earlier}, and is not ordered after it; "
                f"{name} must wait for {earlier.stream_name}, or record_stream must keep the memory"
            )
        block = allocator.allocate(size, stream)
        self._record_block(Allocate, device, block)
        return block

    def _forget(self, storage: SimStorage) -> None:
        """A destructor calls this, at any point of any thread; `drain` frees the block in program order."""
        self.storages.remove(storage)
        if storage.block:
            self._freed.append((storage.device, storage.block))

    def drain(self) -> None:
        with self.lock:
            while self._freed:
                device, block = self._freed.popleft()
                self._record_block(Free, device, block)
                self.allocators[device].free(block)

    def _record_block(self, kind: type[Allocate | Free], device: int, block: MemoryBlock) -> None:
        if self.recorder.running:
            self.recorder.add(
                kind(
                    id=self.recorder.next_id(),
                    device=device,
                    stream=block.stream,
                    address=block.address,
                    size_bytes=block.size,
                )
            )

    # Work

    def launch(
        self, operator: str, stream: int, reads: Sequence[Access], writes: Sequence[Access]
    ) -> tuple[Launch, tuple[int, ...]]:
        """The operation, and the events that wrote its inputs; raise RaceError."""
        launch = Launch(operator, stream, self.stream_name(stream), self.recorder.next_id(), user_line())
        self.order.launch(stream, launch.event)
        inputs: set[int] = set()
        for storage, region in reads:
            if storage.block:
                inputs |= storage.block.shadow.read(region, launch)
        for storage, region in writes:
            if storage.block:
                storage.block.shadow.write(region, launch)
        return launch, tuple(sorted(inputs))


def user_line() -> str:
    """``file:line`` of the innermost caller outside torch and the simulator, or as `at_lines_of` says."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HIDDEN):
        frame = frame.f_back
    for choose in _choices:
        frame = choose(frame)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


_choices: list[Callable[[FrameType], FrameType]] = []


@contextmanager
def at_lines_of(choose: Callable[[FrameType], FrameType]) -> Iterator[None]:
    """Events have the line of the caller that `choose` returns for the innermost one."""
    _choices.append(choose)
    yield
    _choices.remove(choose)


_started: list[Simulation] = []


def start(devices: int, numbers: bool) -> None:
    assert not _started
    _started.append(Simulation(devices, numbers))


def running() -> Simulation | None:
    """None before the start."""
    return _started[0] if _started else None


def the_simulation() -> Simulation:
    """Raise RuntimeError before the start."""
    if not _started:
        raise RuntimeError("the simulator is not started; call dpbench.simulator.simulate(devices=n) first")
    return _started[0]


@contextmanager
def recording() -> Iterator[Recording]:
    """Record the events of all threads."""
    simulation = the_simulation()
    simulation.drain()
    recording = Recording(simulation.devices)
    with simulation.recorder.record(recording):
        yield recording
        simulation.drain()
    recording.streams = simulation.streams()


def log_gradient(parameter: int, size_bytes: int, device: int) -> None:
    simulation = the_simulation()
    if simulation.recorder.running:
        with simulation.lock:
            event_id = simulation.recorder.next_id()
            simulation.recorder.add(
                GradientReady(id=event_id, parameter=parameter, size_bytes=size_bytes, device=device)
            )


def mark(name: str) -> None:
    simulation = the_simulation()
    with simulation.lock:
        simulation.drain()
        simulation.recorder.add(Mark(id=simulation.recorder.next_id(), name=name))
