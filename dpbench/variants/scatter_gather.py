"""A batch in chunks, one for each lane, and the lanes' outputs in one piece again; both differentiable."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def scatter(inputs: Sequence[Tensor], devices: Sequence[torch.device]) -> list[tuple[Tensor, ...]]:
    """Each lane's inputs on its device: chunks of ceil(batch / lanes) items, so the last lanes may get none.

    A chunk that is on its device already is a view.
    """
    parts = [
        [chunk.to(device, non_blocking=True) for chunk, device in zip(x.chunk(len(devices)), devices, strict=False)]
        for x in inputs
    ]
    return list(zip(*parts, strict=True))


def gather(outputs: Sequence[Any], device: torch.device) -> Any:
    """The lanes' outputs concatenated on `device`, tensor by tensor through dicts, lists and (named) tuples.

    The first output decides on the structure; 0-dim tensors become a vector with one item for each lane.
    """
    first = outputs[0]
    if isinstance(first, Tensor):
        return torch.cat([x.reshape(x.shape or 1).to(device) for x in outputs])
    if first is None:
        return None
    if isinstance(first, dict):
        return type(first)((key, gather([x[key] for x in outputs], device)) for key in first)
    members = (gather(member, device) for member in zip(*outputs, strict=True))
    return first._make(members) if hasattr(first, "_make") else type(first)(members)
