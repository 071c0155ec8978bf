"""The streams and waits of backward operators, as in torch's engine on an accelerator.

When the forward of a graph node runs, torch notes the current stream of the device of the node's first output. The
engine runs the node on that stream, and adds waits between nodes (torch/csrc/autograd/engine.cpp, input_buffer.cpp)::

    node A, stream 1:  ops ──> gradient g ──record──┐
                                                    v
    node B, stream 2:                              wait ── (sum of several g) ── ops ──> ... ──record──┐
                                                                                                       v
    caller's streams: ──────────── backward() ──────────────────────────────────────────────────────  wait

The engine names B's stream to the allocator by `record_stream`, but only if A's is another one: memory allocated on a
third stream is not kept.

A hook on a gradient runs in the thread of the consumer, node B, after B's waits. No wait follows, so B sees the hook's
work only if both are on one stream. If the gradient is on another device than B, the hook runs on that device's default
stream.

The C++ engine cannot see simulated streams, so hooks on the nodes do this work. A node gets them when an operator first
reads the tensor that it made, or when ``Function.apply`` returns. They never hold the node itself: a cycle would keep
the graph alive.

Not exact:

- One thread runs the whole pass, so the *host* order is not that of a GPU's threads. Compare streams, not event ids.
- The engine adds gradients out of place, as for every tensor subclass. On CUDA it may add in place.
- A node without an operator of its own, such as that of a view after a write to its base, has the stream of the node
  that follows it in the backward.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from dpbench.records.recording import HostCallName
from dpbench.simulator import current
from dpbench.simulator.current import Backward, GradientHandoff
from dpbench.simulator.simulation import the_simulation
from dpbench.simulator.tensor import SimTensor

_KEY = "dpbench.simulator"
_HERE = f"{Path(__file__).parent}{os.sep}"


@dataclass(frozen=True, slots=True, eq=False)
class _NodeStreams:
    stream: int
    next_streams: tuple[int | None, ...]


def current_stream(device: int) -> int:
    """In a hook that of the hook's node; other devices have their default streams.

    A stream that the hook makes current stays, unless it is the one that the caller of the backward had.
    """
    stream, backward, node = current.stream(device), current.backward(), _hook_stream()
    if node is None or backward is None or stream != backward.streams.get(device, device):
        return stream
    return node if the_simulation().device_of(node) == device else device


def stream_of(device: int, tensors: Sequence[Tensor]) -> int:
    simulated = [tensor for tensor in tensors if isinstance(tensor, SimTensor)]
    for tensor in simulated:
        if tensor.made_on is not None:
            assign_stream(tensor)
    backward = current.backward()
    if backward is None or backward.is_in_node:
        return current.stream(device)
    return _between_nodes(device, simulated, backward)


def _between_nodes(device: int, tensors: Sequence[SimTensor], backward: Backward) -> int:
    """The stream on which the engine adds two gradients, or a hook runs.

    The engine adds on the consumer's stream if that is on this device, else on the producer's, else on the current one.
    A hook does not wait for gradients on another device than its node's.
    """
    simulation, node = the_simulation(), _hook_stream()
    handoffs = [(tensor, handoff) for tensor in tensors if (handoff := _handoff_of(tensor, backward))]
    stream = current_stream(device)
    if node is not None and simulation.device_of(node) != device:
        return stream
    if node is None and handoffs:
        choices = (handoffs[0][1].consumer, handoffs[0][1].producer)
        stream = next((s for s in choices if s is not None and simulation.device_of(s) == device), stream)
    for tensor, handoff in handoffs:
        simulation.wait(stream, handoff.ready)
        if stream != handoff.producer:
            _keep_for(tensor, stream)
    return stream


def _hook_stream() -> int | None:
    """None outside hooks, and for a node without a simulated output."""
    backward = current.backward()
    if backward is None or backward.is_in_node or not _is_in_hook():
        return None
    node: Any = torch._C._current_autograd_node()
    node_streams: _NodeStreams | None = None if node is None else node.metadata.get(_KEY)
    return None if node_streams is None else node_streams.stream


def pass_on_handoff(results: Sequence[SimTensor], sources: Sequence[Tensor], stream: int) -> None:
    """Give `results`, computed between two nodes, the consumer of the gradients `sources`.

    After a hook for a consumer on another device, the consumer waits for the hook's arguments only.
    """
    backward = current.backward()
    if backward is None or backward.is_in_node:
        return
    for tensor in sources:
        handoff = _handoff_of(tensor, backward)
        if handoff is not None:
            if not (_runs_elsewhere(handoff, the_simulation().device_of(stream)) and _is_in_hook()):
                handoff = GradientHandoff(backward, the_simulation().now(stream), stream, handoff.consumer)
            for result in results:
                result.handoff = handoff
            return


def _runs_elsewhere(handoff: GradientHandoff, device: int) -> bool:
    return handoff.consumer is not None and the_simulation().device_of(handoff.consumer) != device


def _is_in_hook() -> bool:
    """A hook has a Python frame above the frame that runs the engine."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and not frame.f_code.co_name.endswith("run_backward"):
        if not frame.f_code.co_filename.startswith(_HERE):
            return True
        frame = frame.f_back
    return False


def _handoff_of(tensor: Any, backward: Backward) -> GradientHandoff | None:
    handoff = tensor.handoff if isinstance(tensor, SimTensor) else None
    return handoff if handoff is not None and handoff.backward is backward else None


def _keep_for(tensor: Tensor, stream: int) -> None:
    if isinstance(tensor, SimTensor):
        for storage in tensor.storages:
            storage.keep_for(stream)


def node_name() -> str | None:
    """None outside a backward pass."""
    node = torch._C._current_autograd_node() if current.backward() else None
    return node.name() if node is not None else None


def assign_stream(tensor: SimTensor) -> None:
    stream, tensor.made_on = tensor.made_on, None
    node = tensor.grad_fn
    if node is not None and stream is not None:
        with the_simulation().lock:
            _add_hooks(node, stream)


def assign_function_stream(results: Any) -> None:
    """Assign a custom function's node the stream that is current after its forward."""
    outputs = results if isinstance(results, (tuple, list)) else (results,)
    for output in outputs:
        if isinstance(output, SimTensor):
            if output.grad_fn is not None:
                output.made_on = current.stream(output.device.index)
                assign_stream(output)
            output.made_on = None


def _add_hooks(node: Any, stream: int) -> int | None:
    """`stream` was current at the node's forward. Return the node's stream; None without a simulated output."""
    node_streams: _NodeStreams | None = node.metadata.get(_KEY)
    if node_streams is not None:
        return node_streams.stream
    outputs = [output.device.index for output in node._input_metadata if output.device.type == "sim"]
    if not outputs:
        return None
    own_stream = stream if the_simulation().device_of(stream) == outputs[0] else current.stream(outputs[0])
    successors = (successor for successor, _ in node.next_functions)
    next_streams = tuple(None if successor is None else _add_hooks(successor, own_stream) for successor in successors)
    node.metadata[_KEY] = node_streams = _NodeStreams(own_stream, next_streams)
    node.register_prehook(partial(_before_node, node_streams))
    node.register_hook(partial(_after_node, node_streams))
    return own_stream


def _before_node(node: _NodeStreams, gradients: Sequence[Tensor | None]) -> None:
    simulation, backward = the_simulation(), current.backward()
    if backward is None:
        return
    if not backward.will_join:
        backward.will_join = True
        torch.autograd.Variable._execution_engine.queue_callback(partial(_join, backward))
    device = simulation.device_of(node.stream)
    for gradient in gradients:
        if not isinstance(gradient, SimTensor):
            continue
        handoff = _handoff_of(gradient, backward)
        if handoff is not None:
            producer = handoff.producer
            simulation.wait(node.stream, handoff.ready)
        else:
            producer = backward.streams.get(gradient.device.index, gradient.device.index)
            simulation.wait_stream(node.stream, producer)
        if producer != node.stream and gradient.device.index == device:
            _keep_for(gradient, node.stream)
    current.begin_node(device, node.stream)


def _after_node(node: _NodeStreams, results: Sequence[Tensor | None], _: Sequence[Tensor | None]) -> None:
    backward = current.backward()
    if backward is None:
        return
    ready = the_simulation().now(node.stream)
    for result, consumer in zip(results, node.next_streams, strict=False):
        if isinstance(result, SimTensor):
            result.handoff = GradientHandoff(backward, ready, node.stream, consumer)
            if consumer is not None and consumer != node.stream:
                the_simulation().host_call(HostCallName.ENGINE_HANDOVER)
    if not results:
        backward.leaf_streams.add(node.stream)
    current.end_node()


def run_backward(engine: Any, roots: Any, *args: Any, **kwargs: Any) -> Any:
    """Run torch's engine in one thread, because it cannot count the simulated devices."""
    for root in roots:
        if isinstance(root, SimTensor) and root.made_on is not None:
            assign_stream(root)
    with current.in_backward() as backward, torch.autograd.set_multithreading_enabled(False):
        try:
            captured = engine(roots, *args, **kwargs)
        except BaseException as error:
            the_simulation().settle()
            if isinstance(error, SystemError):  # the guard in backend.py took the error that an operator raised
                raise backward.error or error from None
            raise
        finally:
            backward.error = None  # its traceback holds this frame
    for gradient in captured or ():
        handoff = _handoff_of(gradient, backward)
        if handoff is not None:
            _capture(backward, handoff)
    _join(backward)
    return captured


def _join(backward: Backward) -> None:
    simulation = the_simulation()
    for stream in backward.leaf_streams:
        device = simulation.device_of(stream)
        simulation.wait_stream(backward.streams.get(device, device), stream)


def _capture(backward: Backward, handoff: GradientHandoff) -> None:
    """For `torch.autograd.grad`: the consumer does not run, but its stream waits."""
    stream = handoff.producer if handoff.consumer is None else handoff.consumer
    the_simulation().wait(stream, handoff.ready)
    backward.leaf_streams.add(stream)


def apply_function(original: Any, cls: Any, *args: Any, **kwargs: Any) -> Any:
    for argument in args:
        if isinstance(argument, SimTensor) and argument.made_on is not None:
            assign_stream(argument)
    results = original(cls, *args, **kwargs)
    assign_function_stream(results)
    return results
