"""All that knows asv (airspeed velocity): its grid and its files.

    grid.py          the fixed grid of benchmarks, and which points this machine can measure
    machine_file.py  asv's machine file: GPUs, driver, NCCL and torch (`dpbench asv-machine`)
    result_file.py   asv's results files: read, write, one row of them
    export.py        records of dpbench as asv results (`dpbench asv-export`)

The suite that asv runs is in benchmarks/asv_suite, and benchmarks/README.md has the user's view.
"""
