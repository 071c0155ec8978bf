"""An operator on one device: check it, compute it on the CPU or only its shapes, record it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dpbench.records.recording import Operator
from dpbench.simulator import autograd
from dpbench.simulator.arguments import map_tensors, raw, run_shapes, simulated_in, tensors_in, with_index
from dpbench.simulator.memory.allocator import MemoryBlock
from dpbench.simulator.memory.races import Launch
from dpbench.simulator.operators import OperatorFacts, answers_host, facts, flops, written_arguments
from dpbench.simulator.recorder import thread_key
from dpbench.simulator.simulation import Simulation, the_simulation, user_line
from dpbench.simulator.tensor import NO_BITS, Bits, SimTensor, bits_of, parts, toggled
from dpbench.simulator.unsupported import UnsupportedError

OnCpu = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class _Call:
    func: Any
    facts: OperatorFacts
    args: Any
    kwargs: Any
    tensors: Sequence[SimTensor]
    device: torch.device
    stream: int


def compute(func: Any, args: Any, kwargs: Any, on_cpu: OnCpu | None = None) -> Any:
    """Raise RuntimeError for tensors on several devices, NotImplementedError for an operator that is not supported."""
    of_operator = facts(func)
    if of_operator.decomposes:
        return func.decompose(*args, **kwargs)
    simulation, tensors = the_simulation(), tensors_in((args, kwargs))
    simulated = [tensor for tensor in tensors if isinstance(tensor, SimTensor)]
    device = _common_device(of_operator, tensors, simulated, args)
    cpu_args, cpu_kwargs = raw(args), {name: raw(value) for name, value in kwargs.items()}
    if of_operator.takes_device and kwargs.get("device") is not None:
        device = with_index(kwargs["device"])
        cpu_kwargs["device"] = simulation.raw_device if device.type == "sim" else "cpu"
    if device.type == "cpu":
        return _on_cpu(on_cpu or func, func, cpu_args, cpu_kwargs)
    if not simulation.numbers:
        result = run_shapes(on_cpu or func, func, cpu_args, cpu_kwargs)
    else:
        if of_operator.takes_generator and kwargs.get("generator") is None:
            cpu_kwargs["generator"] = simulation.generators[device.index]
        result = _on_cpu(on_cpu or func, func, cpu_args, cpu_kwargs)
    call = _Call(func, of_operator, args, kwargs, simulated, device, autograd.stream_of(device.index, simulated))
    with simulation.lock:
        simulation.drain()
        return _record(simulation, call, result)


def _common_device(
    of_operator: OperatorFacts, tensors: Sequence[Tensor], simulated: Sequence[SimTensor], args: Any
) -> torch.device:
    """CPU scalars do not count, nor CPU indices if CUDA accepts them."""
    if not simulated:
        return torch.device("cpu")
    device = simulated[0].device
    if of_operator.makes_like:
        return device
    other_devices = [tensor.device for tensor in simulated if tensor.device != device]
    if len(simulated) < len(tensors):
        other_devices += [tensor.device for tensor in tensors if _is_on_wrong_device(tensor, of_operator, args)]
    if other_devices:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but {of_operator.name} got tensors on {device} and "
            f"{other_devices[0]}"
        )
    return device


def _is_on_wrong_device(tensor: Tensor, of_operator: OperatorFacts, args: Any) -> bool:
    is_index = of_operator.takes_cpu_indices and tensor is not args[0]
    return not isinstance(tensor, SimTensor) and tensor.dim() > 0 and not is_index


def _on_cpu(on_cpu: OnCpu, func: Any, args: Any, kwargs: Any) -> Any:
    try:
        return on_cpu(*args, **kwargs)
    except NotImplementedError as error:
        raise UnsupportedError(f"the simulator does not support {func}: torch has no CPU kernel for it") from error


def _record(simulation: Simulation, call: _Call, result: Any) -> Any:
    of_operator = call.facts
    written = simulated_in(written_arguments(call.func, call.args, call.kwargs)) if of_operator.may_write else []
    fresh: list[SimTensor] = []
    by_raw = {id(tensor.raw): tensor for tensor in call.tensors}

    def wrapper(value: Tensor) -> Tensor:
        argument = by_raw.get(id(value))
        if argument is not None:
            return argument
        bits = bits_of(value)
        plain = value if bits == NO_BITS else toggled(value, bits)
        return wrap(simulation, plain, call.device, call.stream, fresh=fresh, bits=bits)

    wrapped = map_tensors(result, wrapper)
    left: list[MemoryBlock] = []
    for tensor in written:
        tensor.made_on = call.stream
        if of_operator.changes_view or tensor.raw.size() != tensor.size():
            left += filter(None, [simulation.grow(tensor.storages[0], call.stream)])
            tensor.adopt(SimTensor(tensor.raw, call.device, tensor.storages, made_on=call.stream, bits=tensor.bits))
    if left or (
        not of_operator.is_empty and not of_operator.changes_view and (fresh or written or of_operator.answers_host)
    ):
        launch = _launch(simulation, call, written, fresh, wrapped)
        for block in left:
            simulation.leave(call.device.index, block, launch)
    elif simulation.recorder.running:
        view = Operator(id=simulation.recorder.next_id(), is_launched=False, line=user_line(), **_identity(call))
        simulation.recorder.add(view)
    if answers_host(call.func, call.args):
        simulation.host_wait([call.stream])
    autograd.pass_on_handoff([*fresh, *written], call.tensors, call.stream)
    return wrapped


def _launch(
    simulation: Simulation, call: _Call, written: Sequence[SimTensor], fresh: Sequence[SimTensor], result: Any
) -> Launch:
    unread = {id(tensor) for tensor in written} if call.facts.overwrites else set()
    reads = [] if call.facts.makes_like else [tensor for tensor in call.tensors if id(tensor) not in unread]
    writes = [*written, *fresh]
    launch, inputs = simulation.launch(call.facts.name, call.stream, _accesses(reads), _accesses(writes))
    if simulation.recorder.running:
        simulation.recorder.add(
            Operator(
                id=launch.event,
                flops=flops(call.func, call.args, call.kwargs, result),
                read_bytes=_bytes(reads),
                written_bytes=_bytes(writes),
                inputs=inputs,
                line=launch.line,
                **_identity(call),
            )
        )
    return launch


def _identity(call: _Call) -> dict[str, Any]:
    return {
        "name": call.facts.name,
        "device": call.device.index,
        "stream": call.stream,
        "node": autograd.node_name(),
        "thread": thread_key(call.device.index),
    }


def _accesses(tensors: Sequence[SimTensor]) -> list[Any]:
    return [access for tensor in tensors for access in tensor.accesses()]


def _bytes(tensors: Sequence[SimTensor]) -> int:
    return sum(part.numel() * part.itemsize for tensor in tensors for part in parts(tensor.raw))


def wrap(
    simulation: Simulation,
    value: Tensor,
    device: torch.device,
    stream: int,
    *,
    fresh: list[SimTensor] | None = None,
    bits: Bits = NO_BITS,
) -> SimTensor:
    """If the storage of `value` is new to the simulator, allocate memory, and add the tensor to `fresh`."""
    storages, is_fresh = [], False
    for part in parts(value):
        raw_storage = part.untyped_storage()
        storage = simulation.storages.find(raw_storage)
        is_fresh = is_fresh or storage is None
        storages.append(storage or simulation.new_storage(raw_storage, device.index, stream))
    tensor = SimTensor(value, device, tuple(storages), made_on=stream, bits=bits)
    if is_fresh and fresh is not None:
        fresh.append(tensor)
    return tensor
