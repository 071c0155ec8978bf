"""The tables of a replica's modules: a read of a weight waits for its arrival.

The lane cannot wait when the owner's forward starts: ``nn.MultiheadAttention`` reads ``out_proj.weight`` without
calling `out_proj`, and a tied head reads the embedding's weight. Every read goes through the owner's table,
``nn.Module.__getattr__`` included, so the table waits.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from dpbench.parallel.lanes import current_handle, current_stream


class Arrival:
    """Events after which a bucket may be used on a lane.

    Producer: the side streams. Consumer: each stream that reads the bucket; it waits once. On the first lane the events
    say that the base's own tensors have been read. A forward that writes to them, such as batch norm's, waits too.
    """

    def __init__(self, device: torch.device, events: Sequence[Any]) -> None:
        self._device = device
        self._events = events
        self._waited: list[int] = []

    def wait(self) -> None:
        if is_dynamo_compiling():  # dynamo would trace this wait and recompile for the next one
            torch.compiler.disable(Arrival.wait)(self)
            return
        handle = current_handle(self._device)
        if handle not in self._waited:
            stream = current_stream(self._device)
            for event in self._events:
                event.wait(stream)
            self._waited.append(handle)


class AwaitedTable(dict[str, Tensor | None]):
    def __init__(self, values: dict[str, Tensor | None], arrivals: dict[str, Arrival]) -> None:
        super().__init__(values)
        self._arrivals = arrivals

    def __getitem__(self, name: str) -> Tensor | None:
        self._wait_for(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self._wait_for(name)
        return super().get(name, default)

    def pop(self, name: str, *default: Any) -> Any:
        self._wait_for(name)
        return super().pop(name, *default)

    def popitem(self) -> tuple[str, Tensor | None]:
        self._wait_for_all()
        return super().popitem()

    def setdefault(self, name: str, default: Any = None) -> Any:
        self._wait_for(name)
        return super().setdefault(name, default)

    def items(self) -> Any:
        self._wait_for_all()
        return super().items()

    def values(self) -> Any:
        self._wait_for_all()
        return super().values()

    # Without an own __iter__, ``dict(table)`` and ``other.update(table)`` would read the values past this class.
    def __iter__(self) -> Iterator[str]:
        return super().__iter__()

    def copy(self) -> dict[str, Tensor | None]:
        return dict(self.items())

    def __reduce__(self) -> Any:
        return dict, (self.copy(),)

    def _wait_for(self, name: str) -> None:
        arrival = self._arrivals.get(name)
        if arrival is not None:
            arrival.wait()

    def _wait_for_all(self) -> None:
        for arrival in self._arrivals.values():
            arrival.wait()
