"""Seconds that a training step takes on all devices."""

from dpbench.asv import grid

from . import _case, _grid


class StepTime(_grid._OverGrid):
    """asv makes its intervals and its Mann-Whitney test from these samples, of two processes for each commit."""

    unit = "seconds"

    def track_step_time(self, *_):
        record = _case.measure(self.case)
        return {"samples": list(grid.spaced(record.samples_s)), "number": 1}

    track_step_time.rounds = 2
