"""Run each replica in a new thread, as torch/nn/parallel/parallel_apply.py does."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from threading import Thread
from typing import Any

import torch
from torch import Tensor, nn
from torch._utils import ExceptionWrapper


def parallel_apply(
    replicas: Sequence[nn.Module], chunks: Sequence[tuple[Tensor, ...]], devices: Sequence[torch.device]
) -> list[Any]:
    """Return the replicas' outputs, after all threads have ended.

    If replicas raised, re-raise the first one's exception; its text names the replica and the device.
    """
    contexts = [_callers_context(device) for device in devices]
    results: list[Any] = [None] * len(replicas)

    def run(i: int) -> None:
        try:
            with contexts[i]():
                results[i] = replicas[i](*chunks[i])
        except Exception:
            results[i] = ExceptionWrapper(where=f"in replica {i} on device {devices[i]}")

    if len(replicas) == 1:
        run(0)
    else:
        threads = [Thread(target=run, args=(i,)) for i in range(len(replicas))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    for result in results:
        if isinstance(result, ExceptionWrapper):
            result.reraise()
    return results


def _callers_context(device: torch.device) -> Callable[[], AbstractContextManager[None]]:
    """Return a context manager that copies the caller's grad mode, stream and autocast state.

    Another thread enters it. The stock wrapper does not pass on autocast's dtype and cache flag, so there bfloat16
    becomes float16.
    """
    grad_enabled = torch.is_grad_enabled()
    stream = None if device.type == "cpu" else torch.accelerator.current_stream(device)
    autocast = torch.is_autocast_enabled(device.type)
    dtype = torch.get_autocast_dtype(device.type)
    cached = torch.is_autocast_cache_enabled()

    @contextmanager
    def enter() -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(torch.set_grad_enabled(grad_enabled))
            if stream is not None:
                stack.enter_context(torch.accelerator.device_index(device.index))
                stack.enter_context(stream)
            if autocast:
                stack.enter_context(torch.autocast(device.type, dtype=dtype, cache_enabled=cached))
            yield

    return enter
