"""All that knows asv (airspeed velocity), but its suite, benchmarks/asv_suite.

grid.py         the fixed grid of benchmarks, and which points this machine can measure
asv_machine.py  asv's machine file: GPUs, driver, NCCL and torch (`dpbench asv-machine`)
"""
