"""A small described machine with round numbers, and recordings made by hand."""

from dataclasses import replace

from dpbench.projection.machine import (
    Device,
    Efficiency,
    Host,
    HostCost,
    Kind,
    Link,
    Machine,
    Quantity,
    Ring,
)
from dpbench.records.recording import Copy, Mark, Operator, RecordedEvent, Recording


def about(mid: float, unit: str = "B/s") -> Quantity:
    return Quantity(unit=unit, low=mid * 0.8, mid=mid, high=mid * 1.25, source="a test")


def machine(devices: int = 2, **changes: object) -> Machine:
    """Return a machine whose host costs are 1 us each, and whose devices compute 1e12 FLOP/s on 1e12 bytes/s."""
    ports = [(f"up {i}", f"down {i}") for i in range(devices)]
    routes: dict[tuple[int | None, int | None], tuple[str, ...]] = {}
    for i in range(devices):
        routes[None, i], routes[i, None] = (f"down {i}",), (f"up {i}",)
        routes |= {(i, j): (f"up {i}", f"down {j}") for j in range(devices) if i != j}
    one, share = about(1.0, "ratio"), Quantity(unit="ratio", low=1.0, mid=1.0, high=1.0, source="a test")
    made = Machine(
        name="small",
        devices=devices,
        device=Device(
            name="D",
            memory=about(1e10, "B"),
            peak={"float32": about(1e12, "FLOP/s"), "tf32": about(4e12, "FLOP/s")},
            bandwidth=about(1e12),
            efficiency=Efficiency(flop=dict.fromkeys(Kind, share), byte=dict.fromkeys(Kind, share)),
            gap=about(1e-6, "s"),
            factor=one,
        ),
        host=Host(name="H", costs={cost: about(1e-6, "s") for cost in HostCost}, factor=one),
        links={name: Link(bandwidth=about(1e10), latency=about(1e-6, "s")) for pair in ports for name in pair},
        routes=routes,
        ring=Ring(about(1e10), "pcie", about(1e-5, "s"), about(1e-6, "s"), about(1e-5, "s")),
    )
    return replace(made, **changes)  # type: ignore[arg-type]  # fields by name


def operator(number: int, device: int = 0, name: str = "aten.mm.default", **more: object) -> Operator:
    given = {"stream": device, "flops": 10**9, "read_bytes": 10**6, "written_bytes": 10**6, **more}
    return Operator(id=number, name=name, device=device, **given)  # type: ignore[arg-type]  # fields by name


def copy(
    number: int, source: int | None, destination: int | None, size_bytes: int, stream: int, **more: object
) -> Copy:
    return Copy(
        id=number,
        source=source,
        destination=destination,
        size_bytes=size_bytes,
        stream=stream,
        **more,  # type: ignore[arg-type]
    )


def recording(*events: RecordedEvent, devices: int = 2, phase: str = "forward") -> Recording:
    """Return a recording of one phase. Stream i is of device i, and stream n + i too."""
    streams = {i: i % devices for i in range(2 * devices)}
    return Recording(devices, streams, [Mark(id=0, name=phase), *events])
