"""Routes an operator to a copy, a special case, or a computation on one device."""

from collections.abc import Callable
from typing import Any

import torch

from dpbench.records.recording import HostCallName
from dpbench.simulator import copies, current
from dpbench.simulator.compute import compute
from dpbench.simulator.memory.races import RaceError
from dpbench.simulator.operators import aten
from dpbench.simulator.rnn_cells import CELLS
from dpbench.simulator.simulation import the_simulation
from dpbench.simulator.unsupported import UnsupportedError, result_instead


def run(func: Any, args: Any, kwargs: Any) -> Any:
    """`autograd.run_backward` gets an error in a backward pass."""
    special = _SPECIAL.get(func, compute)
    try:
        return special(func, args, kwargs)
    except UnsupportedError as error:
        return result_instead(error, args)
    except BaseException as error:
        if isinstance(error, RaceError):
            the_simulation().settle()
        backward = current.backward()
        if backward:
            backward.error = error
        raise


def _record_stream(_: Any, args: Any, __: Any) -> None:
    tensor, stream = args
    the_simulation().host_call(HostCallName.RECORD_STREAM)
    with the_simulation().lock:
        for storage in tensor.storages:
            storage.keep_for(stream.stream_id)


def _dropout(func: Any, args: Any, kwargs: Any) -> Any:
    simulation = the_simulation()
    generator = simulation.generators[args[0].device.index] if simulation.numbers else None

    def on_cpu(values: torch.Tensor, probability: float, training: bool | None) -> tuple[torch.Tensor, torch.Tensor]:
        if training is False:
            return values.clone(), torch.ones_like(values, dtype=torch.bool)
        mask = torch.empty_like(values, dtype=torch.bool).bernoulli_(1 - probability, generator=generator)
        return values * mask * (0.0 if probability == 1 else 1 / (1 - probability)), mask

    return compute(func, args, kwargs, on_cpu)


def _cell(func: Any, args: Any, kwargs: Any) -> Any:
    return compute(func, args, kwargs, CELLS[func])


def _zeros(func: Any, args: Any, kwargs: Any) -> Any:
    """Torch recognises zeros without memory by a dispatch key, which CPU tensors lack."""
    return compute(func, args, kwargs, torch.zeros)


_SPECIAL: dict[Any, Callable[[Any, Any, Any], Any]] = {
    aten.record_stream.default: _record_stream,
    aten.native_dropout.default: _dropout,
    aten._efficientzerotensor.default: _zeros,
    **dict.fromkeys(CELLS, _cell),
    aten._to_copy.default: copies.to_copy,
    aten.copy_.default: copies.copy_,
    aten._foreach_copy_.default: copies.foreach_copy_,
    aten._local_scalar_dense.default: copies.item,
}
