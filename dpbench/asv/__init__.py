"""All that knows asv (airspeed velocity): its grid, its files, a comparison of commits.

    grid.py          the fixed grid of benchmarks, and which points this machine can measure
    machine_file.py  asv's machine file: GPUs, driver, NCCL and torch (`dpbench asv-machine`)
    result_file.py   asv's results files: read, write, one row of them
    folder.py        asv's results folder: find a machine, a commit, the units
    export.py        records of dpbench as asv results (`dpbench asv-export`)
    samples.py       the ratio of two medians, with an interval
    compare.py       two commits, pair by pair (`dpbench asv-compare`)
    report.py        the pairs as tables and as JSON

The suite that asv runs is in benchmarks/asv_suite, and benchmarks/README.md has the user's view.
"""
