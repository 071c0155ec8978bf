"""Measuring and counting a case in a child process, which imports torch.

The parent process imports none of these files.

    measurement.py        a case measured: samples, phases, memory, telemetry, comparison with the oracle
    memory.py             peaks of host and device memory
    lane_threads.py       the number of intra-op threads of a case's lanes
    session.py            a step: model, batches, variant and optimizer of a case
    sample.py             warm up, then time samples of one or more steps in one window, with readings at its edges
    stopping.py           when warm-up and sampling end
    clock.py              the time once all devices are idle, and the time between two marks
    undisturbed.py        the time of a step without waits that other processes cause
    phases.py             seconds of forward, backward, optimiser and their parts
    fairness.py           does a variant compute what the oracle computes?
    environment.py        what must be equal before two records are compared; the host's part without torch
    gpu/                  telemetry and facts of NVIDIA GPUs, read with NVML
    ranks/                one process per device: the team of all ranks, the time of its collectives, its counters

    count_step.py         the exact counters of one step, from one of these:
    simulated_counts.py       operators, copies and allocations in a recording of simulated devices
    python_calls.py           Python functions that a step calls, and lines that it executes
    counted/                  what else a gate counts: overlap, threads, uses, the start, kept memory

    pinned.py             the default dispatch, with a given choice
    profiled_step.py      a step under torch.profiler
    benchmarked.py        a user's step under pytest-benchmark
"""
