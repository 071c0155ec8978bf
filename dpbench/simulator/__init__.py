"""Simulated accelerators ``sim:0`` to ``sim:n-1`` that compute on the CPU and find races.

``simulate(devices=4)`` registers the devices for the life of the process. README.md lists what is real and what is not.
"""

from dpbench.simulator.backend import simulate
from dpbench.simulator.event_log import Recording
from dpbench.simulator.memory.races import RaceError
from dpbench.simulator.simulation import mark, recording

__all__ = ["RaceError", "Recording", "mark", "recording", "simulate"]
