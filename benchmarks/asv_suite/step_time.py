"""Seconds of a training step on all devices."""

from dpbench.asv import grid

from . import _case, _grid


class StepTime(_grid._OverGrid):
    """Two processes for each commit. asv computes its intervals and its Mann-Whitney test from the samples."""

    unit = "seconds"

    def track_step_time(self, *_):
        record = _case.measure(self.case)
        return {"samples": list(grid.spaced(record.step_times_s)), "number": 1}

    track_step_time.rounds = 2
