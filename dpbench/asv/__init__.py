"""All that knows asv (airspeed velocity): the grid of the suite, and its machine file.

    grid.py         the fixed grid of benchmarks, and which points this machine can measure
    asv_machine.py  asv's machine file: GPUs, driver, NCCL and torch (`dpbench asv-machine`)

The suite that asv runs is in benchmarks/asv_suite, and benchmarks/README.md has the user's view.
"""
