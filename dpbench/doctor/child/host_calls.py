"""Times of calls on the host, for a machine file: each while the devices are busy, so that no call waits for them."""

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import replicate
from torch.optim import SGD
from torch.utils._python_dispatch import TorchDispatchMode

from dpbench.doctor.child.timing import Bench, Work, repeated
from dpbench.doctor.measured import Series, Slope
from dpbench.parallel.lanes import current_handle, current_stream, record_event, use_stream
from dpbench.projection.described.machine import HostCost

_WIDTH = 64
_SHORT, _LONG = 5, 25
_HANDOVERS = 1000


def calls(bench: Bench) -> Iterator[tuple[HostCost, Callable[[], Series]]]:
    """Yield the cost of each single call with the function that measures it."""
    device = bench.devices[0]
    side, here = bench.module.Stream(device), current_stream(device)
    weight = torch.ones(_WIDTH, _WIDTH, device=device, requires_grad=True)
    near, pinned = torch.ones(_WIDTH, device=device), torch.ones(_WIDTH).pin_memory()
    event = record_event(device, here)

    def switch() -> None:
        with use_stream(device, side):
            pass

    held: dict[HostCost, Work] = {
        HostCost.VIEW: weight.t,
        HostCost.COPY: lambda: near.copy_(pinned, non_blocking=True),
        HostCost.EVENT_RECORD: lambda: record_event(device, here),
        HostCost.STREAM_WAIT: lambda: side.wait_event(event),
        HostCost.STREAM_SWITCH: switch,
        HostCost.STREAM_LOOKUP: lambda: current_stream(device),
        HostCost.HANDLE_LOOKUP: lambda: current_handle(device),
        HostCost.RECORD_STREAM: lambda: near.record_stream(side),
    }
    for cost, work in held.items():
        yield cost, partial(_held, bench, work)
    yield HostCost.HOST_WAIT, lambda: repeated(bench.on_host(here.synchronize, is_held=False))
    yield HostCost.THREAD_START, lambda: repeated(bench.on_host(_start_thread, 20, is_held=False))
    yield HostCost.LOCK_HANDOVER, lambda: repeated(handover_s)


def _held(bench: Bench, work: Work) -> Series:
    return repeated(bench.on_host(work))


def forward(bench: Bench) -> tuple[Series, Series]:
    """Return the seconds of an operator that its module calls, and of the operator alone."""
    chain = _Chain(bench.devices[0], _LONG)
    parts = len(chain.layers)
    by_module = bench.on_host(chain.by_modules, 1)
    alone = bench.on_host(chain.by_operators, 1)
    return repeated(lambda: by_module() / parts), repeated(lambda: alone() / parts)


def slopes(bench: Bench) -> Iterator[tuple[HostCost, Callable[[], Slope]]]:
    """Yield the costs that are the difference of a long and a short work, with the functions that measure them."""
    device = bench.devices[0]
    yield HostCost.BACKWARD, lambda: _backward(bench, device)
    yield HostCost.OPTIMISER_PARAMETER, lambda: _optimiser(bench, device)
    yield HostCost.REPLICATE_MODULE, lambda: _replicate(bench)


def handover_s() -> float:
    """Return the seconds until another thread has the interpreter lock: two threads wake each other in turn."""
    mine, other = threading.Semaphore(0), threading.Semaphore(0)

    def answer() -> None:
        for _ in range(_HANDOVERS):
            other.acquire()
            mine.release()

    thread = threading.Thread(target=answer)
    thread.start()
    begin_s = time.perf_counter()
    for _ in range(_HANDOVERS):
        other.release()
        mine.acquire()
    found_s = (time.perf_counter() - begin_s) / (2 * _HANDOVERS)
    thread.join()
    return found_s


def _start_thread() -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()


class _Chain:
    """Blocks of a linear layer, a norm and a ReLU: each layer is one operator on the device in the forward."""

    def __init__(self, device: torch.device, blocks: int) -> None:
        layers = [(nn.Linear(_WIDTH, _WIDTH), nn.LayerNorm(_WIDTH), nn.ReLU()) for _ in range(blocks)]
        self.layers = [layer.to(device) for block in layers for layer in block]
        self.model = nn.Sequential(*self.layers)
        self._weights = [
            (linear.weight, linear.bias, norm.weight, norm.bias)
            for linear, norm, _ in zip(*[iter(self.layers)] * 3, strict=True)
        ]
        self._input = torch.ones(_WIDTH, _WIDTH, device=device)

    def by_modules(self) -> Tensor:
        found: Tensor = self.model(self._input)
        return found

    def by_operators(self) -> Tensor:
        x = self._input
        linear: Callable[..., Tensor] = torch._C._nn.linear
        for weight, bias, scale, shift in self._weights:
            x = torch.relu(torch.layer_norm(linear(x, weight, bias), (_WIDTH,), scale, shift))
        return x

    def loss(self) -> Tensor:
        """Return the sum of the output, whose gradients are not there yet."""
        self.model.zero_grad(set_to_none=True)
        return self.by_modules().sum()


class _Launches(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operators that are no views."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        aliases = [each.alias_info for each in func._schema.returns]
        self.count += not any(alias is not None and not alias.is_write for alias in aliases)
        return func(*args, **(kwargs or {}))


def _backward(bench: Bench, device: torch.device) -> Slope:
    """Return the seconds of ``backward()`` for a short and a long chain, by the number of its operators."""
    short, long = (_Chain(device, blocks) for blocks in (_SHORT, _LONG))

    def operators(chain: _Chain) -> int:
        loss = chain.loss()
        with _Launches() as launches:  # type: ignore[no-untyped-call]
            loss.backward()  # type: ignore[no-untyped-call]
        return int(launches.count)

    def seconds(chain: _Chain) -> float:
        loss = chain.loss()
        return bench.on_host(loss.backward, 1)()

    return _slope((operators(short), operators(long)), lambda: seconds(short), lambda: seconds(long))


def _optimiser(bench: Bench, device: torch.device) -> Slope:
    counts = 4 * _SHORT, 4 * _LONG

    def steps(parameters: int) -> Callable[[], float]:
        tensors = [torch.ones(_WIDTH, device=device, requires_grad=True) for _ in range(parameters)]
        for tensor in tensors:
            tensor.grad = torch.ones_like(tensor)
        return bench.on_host(SGD(tensors, lr=0.0).step, 1)

    return _slope(counts, *map(steps, counts))


def _replicate(bench: Bench) -> Slope:
    """Return the seconds of torch's ``replicate`` on two devices, or on one, by the number of new modules."""
    devices = bench.devices[:2]

    def replicas(blocks: int) -> Callable[[], float]:
        chain = _Chain(devices[0], blocks)
        return bench.on_host(lambda: replicate(chain.model, devices), 1)

    counts = len(devices) * 3 * _SHORT, len(devices) * 3 * _LONG
    return _slope(counts, replicas(_SHORT), replicas(_LONG))


def _slope(counts: tuple[int, int], short: Callable[[], float], long: Callable[[], float]) -> Slope:
    """Return the seconds of a short and a long work, measured in turn."""
    pairs: list[tuple[float, float]] = []

    def both() -> float:
        pairs.append((short(), long()))
        return pairs[-1][1]

    repeated(both)
    short_s, long_s = zip(*pairs[1:], strict=True)  # the first is a warm-up
    return Slope(short=counts[0], long=counts[1], short_s=short_s, long_s=long_s)
