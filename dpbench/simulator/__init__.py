"""A multi-device accelerator on the CPU, ``sim:0`` to ``sim:n-1``: real numbers, streams that can race.

``simulate(devices=4)`` registers it for the life of the process; README.md tells what it is and what it cannot do.
"""

from dpbench.simulator.backend import simulate
from dpbench.simulator.event_log import Recording
from dpbench.simulator.races import RaceError
from dpbench.simulator.simulation import mark, recording

__all__ = ["RaceError", "Recording", "mark", "recording", "simulate"]
