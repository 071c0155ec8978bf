"""The simulated machine: its devices' memory, the order of its streams, and what it was asked to do."""

import itertools
import os
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from dpbench.simulator.allocator import Allocator, MemoryBlock
from dpbench.simulator.event_log import Allocate, Free, HostWait, Mark, Recorder, Recording, Wait
from dpbench.simulator.races import Launch
from dpbench.simulator.regions import Region
from dpbench.simulator.storages import SimStorage, StorageTable
from dpbench.simulator.streams import StreamOrder, VectorClock

_HIDDEN = tuple(f"{Path(file).parent}{os.sep}" for file in (torch.__file__, __file__))
Access = tuple[SimStorage, Region]


class Simulation:
    """Everything that all threads share. Its methods take `lock`; torch's own computations run outside of it.

    The tick of an operation in the clocks is the id of its event in the record.
    """

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self.lock = threading.RLock()
        self.order = StreamOrder()
        self.allocators = [Allocator((index + 1) << 40, self.order) for index in range(devices)]
        self.storages = StorageTable()
        self.recorder = Recorder()
        self.generators = [torch.Generator().manual_seed(torch.initial_seed()) for _ in range(devices)]
        self._device_of_stream = list(range(devices))
        self._freed: deque[tuple[int, MemoryBlock]] = deque()
        self._serials = itertools.count(1)

    # Streams. The default stream of device i is stream i.

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
        """The end of what the stream has been asked to do."""
        with self.lock:
            return self.order.now(stream)

    def wait(self, stream: int, clock: VectorClock) -> None:
        with self.lock:
            news = self.order.news(clock, stream)
            if news and self.recorder.running:
                self.recorder.add(Wait(id=self.recorder.next_id(), stream=stream, after=tuple(sorted(news.values()))))
            self.order.wait(stream, clock)

    def wait_stream(self, stream: int, other: int) -> None:
        if stream != other:
            self.wait(stream, self.now(other))

    def host_wait(self, streams: Iterable[int]) -> None:
        for stream in streams:
            self.host_wait_for(self.now(stream))

    def host_wait_for(self, clock: VectorClock) -> None:
        with self.lock:
            news = self.order.host_news(clock)
            if news and self.recorder.running:
                self.recorder.add(HostWait(id=self.recorder.next_id(), after=tuple(sorted(news.values()))))
            self.order.host_wait(clock)

    def streams(self) -> dict[int, int]:
        """All streams and the device of each."""
        return dict(enumerate(self._device_of_stream))

    # SimStorage.

    def new_memory(self, storage: torch.UntypedStorage, device: int, stream: int) -> SimStorage:
        """SimStorage for a storage that has none, allocated on `stream`. The caller holds the lock."""
        size = storage.nbytes()
        block = self.allocators[device].allocate(size, stream) if size else None
        if block:
            self._record_block(Allocate, device, block)
        memory = SimStorage(storage, device, block, serial=next(self._serials), forget=self._forget)
        self.storages.add(memory)
        return memory

    def grow(self, memory: SimStorage, stream: int) -> None:
        """An ``out=`` made its empty storage larger. Raises NotImplementedError if it was not empty."""
        size = memory.storage.nbytes()
        if memory.block is None and size:
            memory.block = self.allocators[memory.device].allocate(size, stream)
            self._record_block(Allocate, memory.device, memory.block)
        elif memory.block is not None and size > memory.block.size:
            raise NotImplementedError("the simulator cannot do resizing a tensor that is not empty")

    def _forget(self, memory: SimStorage) -> None:
        """Called by a destructor, at any point of any thread: only note it, `drain` does the rest in program order."""
        self.storages.remove(memory)
        if memory.block:
            self._freed.append((memory.device, memory.block))

    def drain(self) -> None:
        """Free what has died since."""
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

    # Work.

    def launch(
        self, operator: str, stream: int, reads: Sequence[Access], writes: Sequence[Access]
    ) -> tuple[Launch, tuple[int, ...]]:
        """The stream's next operation, and the events that wrote what it reads. Raises RaceError."""
        launch = Launch(operator, stream, self.stream_name(stream), self.recorder.next_id(), user_line())
        self.order.launch(stream, launch.event)
        inputs: set[int] = set()
        for memory, region in reads:
            if memory.block:
                inputs |= memory.block.shadow.read(region, launch)
        for memory, region in writes:
            if memory.block:
                memory.block.shadow.write(region, launch)
        return launch, tuple(sorted(inputs))


def user_line() -> str:
    """``file:line`` of the innermost caller outside torch and the simulator."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HIDDEN):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


_started: list[Simulation] = []


def start(devices: int) -> None:
    """Once in a process."""
    assert not _started
    _started.append(Simulation(devices))


def running() -> Simulation | None:
    return _started[0] if _started else None


def the_simulation() -> Simulation:
    """Raises RuntimeError before the start."""
    if not _started:
        raise RuntimeError("the simulator is not started; call dpbench.simulator.simulate(devices=n) first")
    return _started[0]


@contextmanager
def recording() -> Iterator[Recording]:
    """Keep all that the devices are asked to do, in any thread, until the end of the block."""
    simulation = the_simulation()
    simulation.drain()
    recording = Recording(simulation.devices)
    with simulation.recorder.record(recording):
        yield recording
        simulation.drain()
    recording.streams = simulation.streams()


def mark(name: str) -> None:
    """Note a name in the recordings that run, such as where the backward begins."""
    simulation = the_simulation()
    with simulation.lock:
        simulation.drain()
        simulation.recorder.add(Mark(id=simulation.recorder.next_id(), name=name))
