"""Seconds that the host is busy with one training step of a tiny model."""

import time

from dpbench.asv import grid

from . import _case, _grid

_STEPS_BEFORE = 20
_BLOCKS = 40
_BLOCK_STEPS = 10


class HostOverhead(_grid._OverGrid):
    """The time until a step returns. The devices are idle at its start, and the clock does not wait for them.

    The model has eight narrow layers, and each lane gets one item. `ddp` is left out because each rank has its own host
    process.

    A sample is the fastest of ten successive steps. A step takes about a millisecond, less than the scheduler's time
    slice for another process. So on a busy machine the median over all steps measures the other processes: once 6.2 ms
    for `tuned`, whose fastest step took 1.7 ms.
    """

    params = (["torch_dp", "naive", "tuned"], ["mlp/tiny"], _grid.LANES)
    param_names = ("variant", "workload", "lanes")
    unit = "seconds"
    version = "2"

    def setup(self, machine, variant, workload, lanes):
        self.case = grid.case_of(variant, workload, lanes, lanes, machine)

    def track_host_overhead(self, *_):
        try:
            samples_s = fastest_of_blocks(_host_times_s(self.case))
        except (ImportError, TypeError) as error:
            _case.refuse(f"{type(error).__name__}: {error}")
        return {"samples": samples_s, "number": 1}

    track_host_overhead.rounds = 2


def fastest_of_blocks(times_s):
    """The shortest time of each ten successive steps."""
    return [min(times_s[start : start + _BLOCK_STEPS]) for start in range(0, len(times_s), _BLOCK_STEPS)]


def _host_times_s(case):
    import torch

    from dpbench.measure.clock import make_clock
    from dpbench.measure.session import open_session

    torch.set_num_threads(1)
    devices = tuple(map(torch.device, case.devices))
    wait_and_read = make_clock(devices)
    step = open_session(case).step
    times_s = []
    for _ in range(_STEPS_BEFORE + _BLOCKS * _BLOCK_STEPS):
        start_s = wait_and_read()
        step()
        times_s.append(time.perf_counter() - start_s)
    return tuple(times_s[_STEPS_BEFORE:])
