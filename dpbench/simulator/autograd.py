"""Which stream a backward operator runs on and what it waits for, as torch's engine arranges it on an accelerator.

torch gives each graph node the stream that was current, on the device of its first output, when its forward ran; runs
it there; and between nodes puts the waits (torch/csrc/autograd/engine.cpp and input_buffer.cpp)::

    node A, stream 1:  ops ──> gradient g ──record──┐
                                                    v
    node B, stream 2:                              wait ── (sum of several g) ── ops ──> ... ──record──┐
                                                                                                       v
    caller's streams: ──────────── backward() ──────────────────────────────────────────────────────  wait

The C++ engine sees no streams of ours, so hooks on the nodes do it here; a node without outputs on a device has none.
A node is met for the first time when an operator takes the tensor it made (`meet`), or at the exit of
``Function.apply``. Its hooks hold its stream and those of its successors, never the node, so that no cycle keeps a
graph alive.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dpbench.simulator import current
from dpbench.simulator.current import Backward, GradientHandoff
from dpbench.simulator.simulation import the_simulation
from dpbench.simulator.tensor import SimTensor

_KEY = "dpbench.simulator"


@dataclass(frozen=True, slots=True, eq=False)
class _Node:
    """`stream` of a graph node, and the streams of the nodes its outputs go to (None: no such node)."""

    stream: int
    next_streams: tuple[int | None, ...]


def stream_of(device: int, tensors: Sequence[Tensor]) -> int:
    """The stream for an operator on `tensors`: the current one, or for one of the engine's own the gradient's."""
    here = current.backward()
    simulated = [tensor for tensor in tensors if isinstance(tensor, SimTensor)]
    for tensor in simulated:
        if tensor.made_on is not None:
            meet(tensor)
    for tensor in simulated:
        handover = tensor.handover
        if handover is not None and here is handover.backward and not here.is_in_node:
            return _between_nodes(device, tensors, handover)
    return current.stream(device)


def _between_nodes(device: int, tensors: Sequence[Tensor], handover: GradientHandoff) -> int:
    """The engine adds two gradients, or calls a tensor's hook: on the consumer's stream if it is on this device."""
    simulation = the_simulation()
    choices = (handover.consumer, handover.producer)
    stream = next((s for s in choices if s is not None and simulation.device_of(s) == device), current.stream(device))
    for tensor in tensors:
        ready = _handover(tensor, handover.backward)
        if ready is not None:
            simulation.wait(stream, ready.ready)
            _keep_for(tensor, stream)
    return stream


def hand_on(results: Sequence[SimTensor], sources: Sequence[Tensor], stream: int) -> None:
    """What the engine made of gradients between two nodes goes where they were going."""
    here = current.backward()
    if here is None or here.is_in_node:
        return
    for tensor in sources:
        handover = _handover(tensor, here)
        if handover is not None:
            for result in results:
                result.handover = GradientHandoff(here, the_simulation().now(stream), stream, handover.consumer)
            return


def _handover(tensor: Any, here: Backward) -> GradientHandoff | None:
    """The hand-over of a gradient of this pass."""
    handover = tensor.handover if isinstance(tensor, SimTensor) else None
    return handover if handover is not None and handover.backward is here else None


def _keep_for(tensor: Tensor, stream: int) -> None:
    if isinstance(tensor, SimTensor):
        for memory in tensor.storages:
            memory.keep_for(stream)


def node_name() -> str | None:
    """The graph node that is running, for the record."""
    node = torch._C._current_autograd_node() if current.backward() else None
    return node.name() if node is not None else None


def meet(tensor: SimTensor) -> None:
    """Tell the node that made `tensor`, if there is one, its stream."""
    stream, tensor.made_on = tensor.made_on, None
    node = tensor.grad_fn
    if node is not None and stream is not None:
        with the_simulation().lock:
            _attach(node, stream)


def meet_function(results: Any) -> None:
    """Tell the node of a custom function its stream: the current one, now that its forward is over."""
    outputs = results if isinstance(results, (tuple, list)) else (results,)
    for output in outputs:
        if isinstance(output, SimTensor):
            if output.grad_fn is not None:
                output.made_on = current.stream(output.device.index)
                meet(output)
            output.made_on = None


def _attach(node: Any, stream: int) -> int | None:
    """Hook a node and those behind it that nobody has met; its stream, or None for one that is not on a device.

    `stream` was current when the node's forward ran, on this device or another.
    """
    known: _Node | None = node.metadata.get(_KEY)
    if known is not None:
        return known.stream
    outputs = [output.device.index for output in node._input_metadata if output.device.type == "sim"]
    if not outputs:
        return None
    own = stream if the_simulation().device_of(stream) == outputs[0] else current.stream(outputs[0])
    successors = [successor for successor, _ in node.next_functions]
    known = _Node(own, tuple(None if successor is None else _attach(successor, own) for successor in successors))
    node.metadata[_KEY] = known
    node.register_prehook(partial(_enter, known))
    node.register_hook(partial(_leave, known))
    return own


def _enter(node: _Node, gradients: Sequence[Tensor | None]) -> None:
    """A node begins: make its stream current, all others the default ones, and wait for its gradients."""
    simulation, here = the_simulation(), current.backward()
    if here is None:
        return
    if not here.will_join:
        here.will_join = True
        torch.autograd.Variable._execution_engine.queue_callback(partial(_join, here))
    device = simulation.device_of(node.stream)
    for gradient in gradients:
        if not isinstance(gradient, SimTensor):
            continue
        handover = _handover(gradient, here)
        if handover is not None:
            simulation.wait(node.stream, handover.ready)
        else:
            other = gradient.device.index
            simulation.wait_stream(node.stream, here.streams.get(other, other))
        if gradient.device.index == device:
            _keep_for(gradient, node.stream)
    current.begin_node(device, node.stream)


def _leave(node: _Node, results: Sequence[Tensor | None], _: Sequence[Tensor | None]) -> None:
    """A node ends: its gradients are ready as of now on its stream."""
    here = current.backward()
    if here is None:
        return
    ready = the_simulation().now(node.stream)
    for result, consumer in zip(results, node.next_streams, strict=False):
        if isinstance(result, SimTensor):
            result.handover = GradientHandoff(here, ready, node.stream, consumer)
    if not results:
        here.leaf_streams.add(node.stream)
    current.end_node()


def run_backward(engine: Any, roots: Any, *args: Any, **kwargs: Any) -> Any:
    """Around torch's own entry into its engine. One thread does it all: the engine cannot count our devices."""
    for root in roots:
        if isinstance(root, SimTensor) and root.made_on is not None:
            meet(root)
    with current.in_backward() as here, torch.autograd.set_multithreading_enabled(False):
        try:
            captured = engine(roots, *args, **kwargs)
        except SystemError as lost:  # the guard of backend.py had to drop the error that an operator raised
            error, here.error = here.error, None
            raise error or lost from None
    for gradient in captured or ():
        handover = _handover(gradient, here)
        if handover is not None:
            _capture(here, handover)
    _join(here)
    return captured


def _join(here: Backward) -> None:
    """The caller's streams wait for the leaves."""
    simulation = the_simulation()
    for stream in here.leaf_streams:
        device = simulation.device_of(stream)
        simulation.wait_stream(here.streams.get(device, device), stream)


def _capture(here: Backward, handover: GradientHandoff) -> None:
    """`torch.autograd.grad` hands out a gradient in place of the node that would get it."""
    stream = handover.producer if handover.consumer is None else handover.consumer
    the_simulation().wait(stream, handover.ready)
    here.leaf_streams.add(stream)


def apply(original: Any, cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Around ``Function.apply``."""
    for argument in args:
        if isinstance(argument, SimTensor) and argument.made_on is not None:
            meet(argument)
    results = original(cls, *args, **kwargs)
    meet_function(results)
    return results
