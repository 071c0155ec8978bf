"""Simulated accelerators ``sim:0`` to ``sim:n-1`` that compute on the CPU and find races.

``simulate(devices=4)`` registers the devices for the life of the process. Importing this package does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpbench.records.recording import Recording
    from dpbench.simulator.backend import simulate
    from dpbench.simulator.memory.races import RaceError
    from dpbench.simulator.simulation import mark, recording

__all__ = ["RaceError", "Recording", "mark", "recording", "simulate"]
_MODULES = {
    "simulate": "dpbench.simulator.backend",
    "Recording": "dpbench.records.recording",
    "RaceError": "dpbench.simulator.memory.races",
    "mark": "dpbench.simulator.simulation",
    "recording": "dpbench.simulator.simulation",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
