"""The child that measures five numbers of this machine's accelerators, or of two lanes of the CPU if it has none.

python -m benchmarks.measure_machine --record-fd N --parent-pid P
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import combinations
from typing import Any

import psutil
import torch

from benchmarks.machine_file import Measured, MeasureRequest
from dpbench.cases.host import cpu_model
from dpbench.engine.child import answer
from dpbench.jobs.probe_child import first_line, read_accelerators
from dpbench.measure.clock import make_clock
from dpbench.measure.gpu.facts import read_gpu_facts, uuids_of

SIZE_BYTES = 256 << 20
_MOST, _LEAST = 20, 3
_BUDGET_S = 0.5
_MOST_EDGE, _LEAST_EDGE = 8192, 1024
_LONG_ENOUGH_S = 0.02
_CALLS, _TINY_CALLS = 4, 200

Series = tuple[float, ...]


def respond(request: MeasureRequest) -> Measured:
    accelerators, _ = read_accelerators()
    devices = [torch.device(accelerator.device) for accelerator in accelerators] or [torch.device("cpu")] * 2
    return measure(devices, request)


def measure(devices: Sequence[torch.device], request: MeasureRequest) -> Measured:
    """The devices are of one type; what raises is named in `failures`."""
    first, failures, numbers = devices[0], dict[str, str](), dict[str, Any]()
    with _noted("product", failures):
        edge = _edge(first)
        numbers["products"] = {"float32": _products(first, edge, "highest")}
        if first.type == "cuda" and torch.version.hip is None and torch.cuda.get_device_capability(first) >= (8, 0):
            numbers["products"]["tf32"] = _products(first, edge, "high")
        numbers["gap_s"] = gaps_s(first, edge)
    with _noted("memory", failures):
        numbers["memory"] = _additions(first)
    facts: dict[str, Any] = {"links": read_gpu_facts(uuids_of(devices)).links} if first.type == "cuda" else {}
    if len(devices) > 1:
        pair = _pair(facts.get("links", ()))
        facts |= {"copy_pair": pair, "is_peer": _is_peer(devices)}
        with _noted("copy", failures):
            numbers["copies"] = _copies(devices[pair[0]], devices[pair[1]])
        with _noted("all-reduce", failures):
            if not request.with_all_reduce:
                raise RuntimeError("the child did not survive NCCL")
            numbers["all_reduce"] = all_reduces(devices)
    return Measured(
        date=datetime.now(UTC).date().isoformat(),
        torch=torch.__version__,
        cpu_model=cpu_model(),
        failures=failures,
        **_description(devices),
        **facts,
        **numbers,
    )


def repeated(measure: Callable[[], float], budget_s: float = _BUDGET_S) -> Series:
    """3 to 20 results, after a call that is not counted."""
    measure()
    end_s = time.perf_counter() + budget_s
    results = [measure() for _ in range(_LEAST)]
    while len(results) < _MOST and time.perf_counter() < end_s:
        results.append(measure())
    return tuple(results)


def gaps_s(device: torch.device, edge: int) -> Series:
    """On an accelerator, tiny operators queue up behind a large product, so that none waits for the host."""
    tiny, (x, out) = torch.ones(1, device=device), _square(device, edge)
    if device.type == "cpu":
        return repeated(_timed([device], lambda: tiny.add_(1), _TINY_CALLS))
    module: Any = torch.get_device_module(device)
    begin, end = (module.Event(enable_timing=True) for _ in range(2))

    def once() -> float:
        torch.mm(x, x, out=out)
        begin.record()
        for _ in range(_TINY_CALLS):
            tiny.add_(1)
        end.record()
        module.synchronize(device)
        return float(begin.elapsed_time(end)) / 1000 / _TINY_CALLS

    return repeated(once)


def all_reduces(devices: Sequence[torch.device]) -> Series:
    """Bus bandwidth of NCCL in one process; raise RuntimeError without NCCL."""
    tensors = [torch.ones(SIZE_BYTES // 4, device=device) for device in devices]
    nccl: Any = torch.cuda.nccl
    if devices[0].type != "cuda" or not nccl.is_available(tensors):
        raise RuntimeError(f"this torch has no NCCL for {devices[0].type}")
    moved = 2 * (len(devices) - 1) / len(devices) * SIZE_BYTES
    return _rates(moved, devices, lambda: nccl.all_reduce(tensors))


def _additions(device: torch.device) -> Series:
    x, out = (torch.ones(SIZE_BYTES // 4, device=device) for _ in range(2))
    return _rates(2 * SIZE_BYTES, [device], lambda: torch.add(x, x, out=out))


def _copies(source: torch.device, destination: torch.device) -> Series:
    x, out = torch.ones(SIZE_BYTES // 4, device=source), torch.ones(SIZE_BYTES // 4, device=destination)
    return _rates(SIZE_BYTES, [source, destination], lambda: out.copy_(x, non_blocking=True))


def _products(device: torch.device, edge: int, precision: str) -> Series:
    x, out = _square(device, edge)
    torch.set_float32_matmul_precision(precision)
    try:
        return _rates(2.0 * edge**3, [device], lambda: torch.mm(x, x, out=out), calls=1)
    finally:
        torch.set_float32_matmul_precision("highest")


def _edge(device: torch.device) -> int:
    """The edge of a square product that takes 20 ms, up to 8192."""
    edge = _LEAST_EDGE
    while edge < _MOST_EDGE and _product_s(device, edge) < _LONG_ENOUGH_S:
        edge *= 2
    return edge


def _product_s(device: torch.device, edge: int) -> float:
    x, out = _square(device, edge)
    once = _timed([device], lambda: torch.mm(x, x, out=out), 1)
    once()
    return once()


def _square(device: torch.device, edge: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ones(edge, edge, device=device), torch.ones(edge, edge, device=device)


def _rates(amount: float, devices: Sequence[torch.device], work: Callable[[], object], calls: int = _CALLS) -> Series:
    return tuple(amount / seconds for seconds in repeated(_timed(devices, work, calls)))


def _timed(devices: Sequence[torch.device], work: Callable[[], object], calls: int) -> Callable[[], float]:
    clock = make_clock(devices)

    def once() -> float:
        begin_s = clock()
        for _ in range(calls):
            work()
        return (clock() - begin_s) / calls

    return once


def _pair(links: Sequence[str]) -> tuple[int, int]:
    fast = (pair.split("-") for pair, _, kind in (entry.partition(" ") for entry in links) if kind.startswith("NV"))
    one, other = next(fast, ("0", "1"))
    return int(one), int(other)


def _is_peer(devices: Sequence[torch.device]) -> bool:
    if devices[0].type == "cpu":
        return True
    module: Any = torch.get_device_module(devices[0])
    return all(module.can_device_access_peer(*pair) for pair in combinations(devices, 2))


def _description(devices: Sequence[torch.device]) -> dict[str, Any]:
    if devices[0].type == "cpu":
        return {
            "names": (cpu_model(),) * len(devices),
            "memory_bytes": psutil.virtual_memory().total,
            "capability": None,
        }
    module: Any = torch.get_device_module(devices[0])
    properties = [module.get_device_properties(device) for device in devices]
    capability = module.get_device_capability(devices[0])
    return {
        "names": tuple(device.name for device in properties),
        "memory_bytes": properties[0].total_memory,
        "capability": capability if isinstance(capability, tuple) else (0, 0),  # xpu's is a table
    }


@contextmanager
def _noted(what: str, failures: dict[str, str]) -> Iterator[None]:
    """Keep the reason if the block raises. torch.OutOfMemoryError is a RuntimeError."""
    try:
        yield
    except (RuntimeError, NotImplementedError, AttributeError) as error:
        failures[what] = first_line(error)


if __name__ == "__main__":
    answer(respond)
