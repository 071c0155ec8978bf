"""Copies between devices and with the host: what they wait for, on which stream they run, which link they take.

Between two devices the copy runs on the *source's* current stream, after the destination's current stream, which then
waits for it (aten/src/ATen/native/cuda/Copy.cu)::

    destination stream ──┐            ┌── waits ──>
                         v            │
    source stream  ── waits ── copy ──┘

With the host it runs on the device's current stream. The host waits for it unless told `non_blocking`; for a copy to
the host it waits in any case, because there is no pinned memory here and CUDA then blocks too.
"""

from typing import Any

from torch import Tensor

from dpbench.simulator import autograd
from dpbench.simulator.arguments import raw, with_index
from dpbench.simulator.compute import compute, wrap
from dpbench.simulator.event_log import Copy
from dpbench.simulator.operators import aten
from dpbench.simulator.simulation import Simulation, the_simulation
from dpbench.simulator.tensor import SimTensor, parts


def to_copy(func: Any, args: Any, kwargs: Any) -> Tensor:
    """``Tensor.to`` and its like, where it copies."""
    source: Tensor = args[0]
    target = with_index(kwargs["device"]) if kwargs.get("device") is not None else source.device
    if target == source.device:
        return compute(func, args, {**kwargs, "device": None})
    if kwargs.get("pin_memory"):
        raise NotImplementedError("the simulator cannot do pinned memory")
    non_blocking = kwargs.get("non_blocking", False)
    options = {name: kwargs[name] for name in ("dtype", "layout", "memory_format") if name in kwargs}
    value = aten._to_copy.default(raw(source), **options)
    simulation = the_simulation()
    with simulation.lock:
        simulation.drain()
        if target.type == "cpu":
            _copy(simulation, source, value, non_blocking)
            return value
        result = wrap(simulation, value, target, autograd.stream_of(target.index, [source]))
        _copy(simulation, source, result, non_blocking)
        return result


def copy_(func: Any, args: Any, kwargs: Any) -> Tensor:
    """``destination.copy_(source)``."""
    destination, source = args[:2]
    non_blocking = args[2] if len(args) > 2 else kwargs.get("non_blocking", False)
    if source.device == destination.device:
        return compute(func, args, kwargs)
    raw(destination).copy_(raw(source))
    simulation = the_simulation()
    with simulation.lock:
        simulation.drain()
        _copy(simulation, source, destination, non_blocking)
    return destination


def foreach_copy_(func: Any, args: Any, kwargs: Any) -> None:
    """One operator where all are on one device, else tensor by tensor, as CUDA does."""
    destinations, sources = args[:2]
    if len({tensor.device for tensor in (*destinations, *sources)}) == 1:
        compute(func, args, kwargs)
        return
    for destination, source in zip(destinations, sources, strict=True):
        copy_(aten.copy_.default, (destination, source, *args[2:]), kwargs)


def item(func: Any, args: Any, _: Any) -> Any:
    """``tensor.item()``: the host waits for the number."""
    value = func(raw(args[0]))
    simulation = the_simulation()
    with simulation.lock:
        simulation.drain()
        _copy(simulation, args[0], args[0].raw, non_blocking=False)
    return value


def _copy(simulation: Simulation, source: Tensor, destination: Tensor, non_blocking: bool) -> None:
    """Account for the copy. The caller holds the lock."""
    ends = [_stream(tensor, source) for tensor in (source, destination)]
    from_stream, to_stream = ends
    stream = from_stream if from_stream is not None else to_stream
    assert stream is not None
    if from_stream is not None and to_stream is not None:
        simulation.wait_stream(from_stream, to_stream)
    launch, inputs = simulation.launch(
        f"copy {source.device} to {destination.device}", stream, *map(_accesses, (source, destination))
    )
    if simulation.recorder.running:
        simulation.recorder.add(
            Copy(
                id=launch.event,
                source=_index(source),
                destination=_index(destination),
                size_bytes=sum(part.numel() * part.itemsize for part in parts(raw(destination))),
                stream=stream,
                inputs=inputs,
                node=autograd.node_name(),
                line=launch.line,
            )
        )
    if from_stream is not None and to_stream is not None:
        simulation.wait_stream(to_stream, from_stream)
    elif to_stream is None or not non_blocking:
        simulation.host_wait([stream])
    if isinstance(destination, SimTensor):
        destination.made_on = to_stream
        autograd.hand_on([destination], [source], stream if to_stream is None else to_stream)


def _stream(tensor: Tensor, source: Tensor) -> int | None:
    return autograd.stream_of(tensor.device.index, [source]) if isinstance(tensor, SimTensor) else None


def _accesses(tensor: Tensor) -> list[Any]:
    return tensor.accesses() if isinstance(tensor, SimTensor) else []


def _index(tensor: Tensor) -> int | None:
    return tensor.device.index if isinstance(tensor, SimTensor) else None
