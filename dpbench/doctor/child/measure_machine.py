"""The child that measures this machine's accelerators.

A MeasureRequest comes on stdin, and Measurements go to the record pipe.

    python -m dpbench.doctor.child.measure_machine --record-fd N --parent-pid P

What raises is named in `Measurements.failures`, and the rest is measured all the same.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import torch

from dpbench.doctor.child import collectives, copies, host_calls, operators
from dpbench.doctor.child.timing import Bench, repeated
from dpbench.doctor.measured import Measurements, MeasureRequest
from dpbench.measure.gpu.facts import read_gpu_facts, uuids_of
from dpbench.run.child.probe import one_line, read_accelerators
from dpbench.run.child.process import send
from dpbench.run.process_tree import die_with_parent
from dpbench.sweep.host import cpu_model

_TINY_CALLS = 200


def main() -> None:
    options = _options()
    die_with_parent(options.parent_pid)
    request = MeasureRequest.model_validate_json(sys.stdin.read())
    devices = [torch.device(found.device) for found in read_accelerators()[0]]
    send(options.record_fd, measure(devices, request).model_dump_json())


def measure(devices: Sequence[torch.device], request: MeasureRequest) -> Measurements:
    """Return all measurements of these devices, of which there is at least one."""
    bench, failures = Bench(devices), _Failures()
    first = devices[0]
    properties = [bench.module.get_device_properties(device) for device in devices]
    capability = bench.module.get_device_capability(first)
    found: dict[str, Any] = {}
    found["operators"] = failures.each(
        (f"{each.kind} of {each.shape}", partial(operators.measure, each, bench))
        for each in operators.operators(bench, has_tf32=torch.version.hip is None and capability >= (8, 0))
    )
    with failures.noted("gap"):
        tiny = torch.ones(1, device=first)
        found["gap_s"] = repeated(bench.on_device(first, lambda: tiny.add_(1), _TINY_CALLS))
    with failures.noted("same work"):
        found["same_work_s"] = same_work(bench)
    found["host_copies"] = failures.each(
        (f"host to {device}", partial(copies.host_copies, bench, device)) for device in devices
    )
    found["pairs"] = failures.each(
        (f"{one} to {other}", partial(copies.pair_copies, bench, one, other)) for one, other in permutations(devices, 2)
    )
    if len(devices) > 1:
        found |= _among_all(bench, failures, request)
    found |= _on_the_host(bench, failures)
    return Measurements(
        date=datetime.now(UTC).date().isoformat(),
        torch=torch.__version__,
        names=tuple(each.name for each in properties),
        cpu_model=cpu_model(),
        capability=capability,
        memory_bytes=tuple(each.total_memory for each in properties),
        numa_nodes=tuple(map(numa_node, properties)),
        links=read_gpu_facts(uuids_of(devices)).links,
        copy_bytes=copies.COPY_BYTES,
        failures=failures.reasons,
        **found,
    )


def same_work(bench: Bench) -> tuple[tuple[float, ...], ...]:
    """Return the seconds of the large product on each device; all devices work at once."""
    events = [[bench.module.Event(enable_timing=True) for _ in range(2)] for _ in bench.devices]
    rows: list[list[float]] = []

    def once() -> float:
        for device, (begin, end) in zip(bench.devices, events, strict=True):
            stream = bench.module.current_stream(device)
            begin.record(stream)
            bench.product(device)
            end.record(stream)
        bench.synchronise()
        rows.append([float(begin.elapsed_time(end)) / 1000 for begin, end in events])
        return 0.0

    repeated(once)
    return tuple(zip(*rows[1:], strict=True))  # the first is a warm-up


def numa_node(properties: Any) -> int | None:
    """Return the NUMA node of a device, from its PCI address; None if the kernel does not know it."""
    parts = [getattr(properties, f"pci_{name}_id", None) for name in ("domain", "bus", "device")]
    if any(part is None for part in parts):
        return None
    domain, bus, device = parts
    try:
        node = int(Path(f"/sys/bus/pci/devices/{domain:04x}:{bus:02x}:{device:02x}.0/numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def _among_all(bench: Bench, failures: "_Failures", request: MeasureRequest) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with failures.noted("copies to all at once"):
        found["to_all"] = copies.to_all(bench)
    with failures.noted("copies from the first device"):
        found["from_first"] = copies.from_first(bench)
    with failures.noted("collectives"):
        if not request.with_collectives:
            raise RuntimeError("the child did not survive NCCL")
        found["collectives"] = collectives.collectives(bench)
    return found


def _on_the_host(bench: Bench, failures: "_Failures") -> dict[str, Any]:
    found: dict[str, Any] = {"calls_s": {}, "slopes": {}}
    for cost, call in host_calls.calls(bench):
        with failures.noted(cost):
            found["calls_s"][cost] = call()
    with failures.noted("forward"):
        found["forward_module_s"], found["forward_builtin_s"] = host_calls.forward(bench)
    for cost, slope in host_calls.slopes(bench):
        with failures.noted(cost):
            found["slopes"][cost] = slope()
    return found


class _Failures:
    """What could not be measured, and why."""

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}

    @contextmanager
    def noted(self, what: str) -> Iterator[None]:
        """Keep the reason if the block raises. torch.OutOfMemoryError is a RuntimeError."""
        try:
            yield
        except (RuntimeError, NotImplementedError, AttributeError) as error:
            self.reasons[str(what)] = one_line(error)

    def each(self, named: Iterator[tuple[str, Callable[[], Any]]]) -> tuple[Any, ...]:
        """Return the results of those that do not raise."""
        results = []
        for what, measured in named:
            with self.noted(what):
                results.append(measured())
        return tuple(results)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m dpbench.doctor.child.measure_machine", description=__doc__)
    parser.add_argument("--parent-pid", type=int, required=True)
    parser.add_argument("--record-fd", type=int, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
