"""Where a lane's graphs are captured: a stream and a memory pool of its own.

torch keeps state about captures that a failed one would leave behind, and that graphs on one stream share.
"""

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch

from dpbench.parallel.lanes import use_stream

STREAMS = 32
"""The number of streams that torch has for each device; it gives them in turns (c10/cuda/CUDAStream.cpp)."""


class RefusedError(Exception):
    """The lane cannot be captured; the text is the reason."""


class CapturePlace:
    """torch 2.12 and later drop a capture stream's cuBLAS workspaces with any graph captured there, although other
    graphs have their addresses (pytorch#193402). So no other place gets the stream, and a graph stays until `close`,
    or until nothing refers to the place. Thus the pool always has a user: torch up to 2.11 cannot capture into a pool
    whose graphs are gone while a workspace lies in it.

    Raises RefusedError if all capture streams of the device are in use.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.stream = _draw_stream(device, self)
        self._pool = torch.cuda.graph_pool_handle()
        self._graphs: list[torch.cuda.CUDAGraph] = []
        # Users of the pool that failed captures have left, and that `close` must take away.
        self._failures = 0

    @contextmanager
    def capture(self) -> Iterator[torch.cuda.CUDAGraph]:
        """Capture a block on the place's stream."""
        here, graph = torch.cuda.current_stream(self._device), torch.cuda.CUDAGraph()
        try:
            # thread_local: a capture in another thread, or an allocation there, is none of ours.
            recording = torch.cuda.graph(graph, pool=self._pool, stream=self.stream, capture_error_mode="thread_local")
            with use_stream(self._device, here), recording:
                yield graph
        except BaseException:
            self._abandon(graph)
            raise
        finally:
            here.wait_stream(self.stream)  # torch up to 2.11 fills the generator's tensors there
        self._graphs.append(graph)

    def _abandon(self, graph: torch.cuda.CUDAGraph) -> None:
        """Undo a capture that raised.

        Up to torch 2.12 the allocator and the generator believe that it goes on, if CUDA could not end it. Then eager
        random numbers raise, and memory that another stream has used is never used again (pytorch#180395).
        """
        with suppress(RuntimeError):
            graph.pool()  # raises if the capture has not ended
            self._graphs.append(graph)
            return
        self._failures += 1
        with suppress(RuntimeError):  # raised by newer versions, which need nothing of this
            torch._C._cuda_endAllocateToPool(self._device.index, self._pool)
            whole = torch.cuda.CUDAGraph()  # a capture that ends also ends the generator's
            with torch.cuda.graph(whole, stream=self.stream, capture_error_mode="thread_local"):
                torch.zeros(1, device=self._device)

    def close(self) -> None:
        """Give the graphs' memory back; they cannot be launched any more."""
        for graph in self._graphs:
            graph.reset()
        self._graphs.clear()
        if torch.version.hip is None and torch.__version__ < "2.14":
            for _ in range(self._failures):  # a failed capture has remained a user of the pool (pytorch#190348)
                torch._C._cuda_releasePool(self._device.index, self._pool)
        self._failures = 0


_places: weakref.WeakValueDictionary[torch.cuda.Stream, CapturePlace] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def _draw_stream(device: torch.device, place: CapturePlace) -> torch.cuda.Stream:
    with _lock:
        for _ in range(STREAMS):
            stream = torch.cuda.Stream(device)
            if stream not in _places:
                _places[stream] = place
                return stream
    raise RefusedError(f"all {STREAMS} capture streams of {device} have graphs")
