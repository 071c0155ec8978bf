"""Checkpoints of a training run: one file, or one folder for each.

A checkpoint appears under its name, the number of steps done, when it is complete.
"""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from dpbench.elastic.elastic_record import CheckpointFormat


class Checkpoints(ABC):
    """All ranks call `save` and `restore` together."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._folder, self._rank = folder, rank

    @abstractmethod
    def save(self, model: nn.Module, optimizer: Optimizer, steps_done: int) -> None: ...

    @abstractmethod
    def restore(self, model: nn.Module, optimizer: Optimizer) -> int:
        """Load the newest complete checkpoint; return its steps, 0 without one."""


class FileCheckpoints(Checkpoints):
    def save(self, model: nn.Module, optimizer: Optimizer, steps_done: int) -> None:
        if self._rank != 0:
            return
        path = self._folder / f"steps-{steps_done:09d}.pt"
        beside = path.with_suffix(".partial")
        torch.save(_state(model, optimizer), beside)
        beside.rename(path)

    def restore(self, model: nn.Module, optimizer: Optimizer) -> int:
        complete = sorted(self._folder.glob("steps-*.pt"))
        if not complete:
            return 0
        state = torch.load(complete[-1], weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        return _steps_of(complete[-1])


class FolderCheckpoints(Checkpoints):
    """`torch.distributed.checkpoint`, which writes ``.metadata`` last."""

    def save(self, model: nn.Module, optimizer: Optimizer, steps_done: int) -> None:
        # Importing it takes long, and the other format does not need it.
        from torch.distributed.checkpoint.state_dict_saver import save

        save(_state(model, optimizer), checkpoint_id=self._folder / f"steps-{steps_done:09d}")

    def restore(self, model: nn.Module, optimizer: Optimizer) -> int:
        complete = sorted(path.parent for path in self._folder.glob("steps-*/.metadata"))
        if not complete:
            return 0
        from torch.distributed.checkpoint.state_dict_loader import load

        state = _state(model, optimizer)
        load(state, checkpoint_id=complete[-1])
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        return _steps_of(complete[-1])


def open_checkpoints(form: CheckpointFormat, folder: Path, rank: int) -> Checkpoints:
    kind = FileCheckpoints if form is CheckpointFormat.TORCH_SAVE else FolderCheckpoints
    return kind(folder, rank)


def _state(model: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


def _steps_of(path: Path) -> int:
    return int(path.stem.removeprefix("steps-"))
