"""Copies between devices and with the host: the stream of each copy, and its waits.

A copy between two devices runs on the current stream of the *source*. It waits for the current stream of the
destination, which then waits for the copy (aten/src/ATen/native/cuda/Copy.cu)::

    destination stream ──┐            ┌── waits ──>
                         v            │
    source stream  ── waits ── copy ──┘

A copy with the host runs on the current stream of the device. The host waits for the copy, unless it is `non_blocking`
from the host.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dpbench.records.recording import Copy
from dpbench.simulator import autograd
from dpbench.simulator.arguments import NumbersNeededError, raw, with_index, zeros
from dpbench.simulator.compute import compute, wrap
from dpbench.simulator.operators import aten
from dpbench.simulator.recorder import thread_key
from dpbench.simulator.simulation import Access, Simulation, the_simulation
from dpbench.simulator.tensor import SimTensor, parts
from dpbench.simulator.unsupported import UnsupportedError


def to_copy(func: Any, args: Any, kwargs: Any) -> Tensor:
    """Raise NotImplementedError for pinned memory."""
    source: Tensor = args[0]
    target = with_index(kwargs["device"]) if kwargs.get("device") is not None else source.device
    if target == source.device:
        return compute(func, args, {**kwargs, "device": None})
    if kwargs.get("pin_memory"):
        raise UnsupportedError("the simulator does not support copies into pinned memory")
    non_blocking = kwargs.get("non_blocking", False)
    options = {name: kwargs[name] for name in ("dtype", "layout", "memory_format") if name in kwargs}
    simulation = the_simulation()
    value = _converted(source, target, options)
    with simulation.lock:
        simulation.drain()
        if target.type == "cpu":
            _record(simulation, source, value, non_blocking)
            return value
        result = wrap(simulation, value, target, autograd.stream_of(target.index, [source]))
        _record(simulation, source, result, non_blocking)
        return result


def copy_(func: Any, args: Any, kwargs: Any) -> Tensor:
    destination, source = args[:2]
    non_blocking = args[2] if len(args) > 2 else kwargs.get("non_blocking", False)
    if source.device == destination.device:
        return compute(func, args, kwargs)
    simulation = the_simulation()
    if simulation.numbers or isinstance(destination, SimTensor):
        raw(destination).copy_(raw(source))
    else:
        destination.zero_()
    with simulation.lock:
        simulation.drain()
        _record(simulation, source, destination, non_blocking)
    return destination


def foreach_copy_(func: Any, args: Any, kwargs: Any) -> None:
    """One operator on one device, or else one copy for each pair, as CUDA does."""
    destinations, sources = args[:2]
    if len({tensor.device for tensor in (*destinations, *sources)}) == 1:
        compute(func, args, kwargs)
        return
    for destination, source in zip(destinations, sources, strict=True):
        copy_(aten.copy_.default, (destination, source, *args[2:]), kwargs)


def item(func: Any, args: Any, _: Any) -> Any:
    simulation = the_simulation()
    if not simulation.numbers:
        raise NumbersNeededError("item()")
    value = func(raw(args[0]))
    with simulation.lock:
        simulation.drain()
        _record(simulation, args[0], args[0].raw, non_blocking=False)
    return value


def _converted(source: Tensor, target: torch.device, options: dict[str, Any]) -> Tensor:
    if the_simulation().numbers:
        return aten._to_copy.default(raw(source), **options)
    value = aten._to_copy.default(raw(source), **options, device="meta")
    return zeros(value) if target.type == "cpu" else value


def _record(simulation: Simulation, source: Tensor, destination: Tensor, non_blocking: bool) -> None:
    """The caller holds the lock. Raise RaceError."""
    ends = [_stream(tensor, source) for tensor in (source, destination)]
    from_stream, to_stream = ends
    stream = from_stream if from_stream is not None else to_stream
    assert stream is not None
    if from_stream is not None and to_stream is not None:
        simulation.wait_stream(from_stream, to_stream)
    reads, writes = (_accesses(tensor) for tensor in (source, destination))
    launch, inputs = simulation.launch(f"copy {source.device} to {destination.device}", stream, reads, writes)
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
                thread=thread_key(),
            )
        )
    if from_stream is not None and to_stream is not None:
        simulation.wait_stream(to_stream, from_stream)
    elif not non_blocking or to_stream is None:
        simulation.host_wait([stream])
    if isinstance(destination, SimTensor):
        destination.made_on = to_stream
        autograd.pass_on_handoff([destination], [source], stream if to_stream is None else to_stream)


def _stream(tensor: Tensor, source: Tensor) -> int | None:
    return autograd.stream_of(tensor.device.index, [source]) if isinstance(tensor, SimTensor) else None


def _accesses(tensor: Tensor) -> Sequence[Access]:
    return tensor.accesses() if isinstance(tensor, SimTensor) else []


def _index(tensor: Tensor) -> int | None:
    return tensor.device.index if isinstance(tensor, SimTensor) else None
