"""The benchmarks that asv follows from commit to commit. Lower is always better.

    step_time.py      seconds of a training step on all devices
    host_overhead.py  seconds that the host is busy with a step of a tiny model
    counters.py       exact counts of a step on simulated devices
    gpu.py            memory, idle time and energy of the GPUs
    _grid.py          the base class of benchmarks over the grid
    _case.py          measure a case in a child, or skip it

Only `dpbench.parallel` is the commit's: see benchmarks/asv_overlay.py. asv imports all modules for each combination of
parameters, so importing them loads neither torch nor NVML.
"""
