"""Seconds that the host is busy with one training step that has next to nothing to compute."""

import time

from dpbench.sweep import history

from . import _case, _grid

_STEPS = 200
_STEPS_BEFORE = 20


class HostOverhead(_grid._OverGrid):
    """One item for each lane of eight narrow layers, until the step returns: the devices are idle when it begins, and
    are not waited for. `ddp` has no host of its own, but one in each rank.
    """

    params = (["torch_dp", "naive", "tuned"], ["mlp/tiny"], _grid.LANES)
    param_names = ("variant", "workload", "lanes")
    unit = "seconds"

    def setup(self, box, variant, workload, lanes):
        self.case = history.case_of(variant, workload, lanes, lanes, box)

    def track_host_overhead(self, *_):
        try:
            samples_s = _host_times_s(self.case)
        except (ImportError, TypeError) as error:
            _case.refuse(f"{type(error).__name__}: {error}")
        return {"samples": list(history.spaced(samples_s)), "number": 1}

    track_host_overhead.rounds = 2


def _host_times_s(case):
    import torch

    from dpbench.measure.clock import make_clock
    from dpbench.measure.session import Seat, Session
    from dpbench.variants.catalog import VARIANTS
    from dpbench.workloads.catalog import resolve

    torch.set_num_threads(1)
    devices = tuple(map(torch.device, case.devices))
    wait_and_read = make_clock(devices)
    step = Session(case, resolve(case.workload, case.data), VARIANTS[case.variant], Seat(devices)).step
    times_s = []
    for _ in range(_STEPS_BEFORE + _STEPS):
        start_s = wait_and_read()
        step()
        times_s.append(time.perf_counter() - start_s)
    return tuple(times_s[_STEPS_BEFORE:])
