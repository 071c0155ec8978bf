"""How often this machine was seen to call identical code slower: by its self-test, else by the twins of its gates."""

from collections.abc import Sequence

from dpbench.gate.history import false_alarms_of_twins
from dpbench.gate.history_line import HistoryLine
from dpbench.gate.judgement import FalseAlarms
from dpbench.results.record import Environment


def measured_false_alarms(lines: Sequence[HistoryLine], environment: Environment | None) -> FalseAlarms | None:
    """None where nothing was measured on the machine of this environment."""
    if environment is None:
        return None
    return false_alarms_of_twins(lines, environment)
