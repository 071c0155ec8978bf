"""Measuring and counting a case in a child process, which imports torch.

measurement.py        a case measured: samples and metrics
memory.py             peaks of host and device memory
lane_threads.py       the number of intra-op threads of a case's lanes
session.py            a step: model, batches, variant and optimizer
sample.py             warm up, then time samples
stopping.py           when warm-up and sampling end
clock.py              the time once all devices are idle
undisturbed.py        the time of a step without waits that other processes cause
phases.py             seconds of forward, backward, optimiser and their parts
fairness.py           gradients against the plain module's
compilation.py        what torch compiles, for how long and why
environment.py        what must be equal before two records are compared
gpu/                  telemetry and facts of NVIDIA GPUs
ranks/                one process per device

count_step.py         the exact counters of one step, from one of these:
simulated_counts.py       a recording of simulated devices
python_calls.py           Python calls and lines
counted/                  what else a gate counts

simulator_check.py    does the simulator work with this torch?
pinned.py             the default dispatch, with a given choice
profiled_step.py      a step under torch.profiler
benchmarked.py        a user's step under pytest-benchmark
"""
