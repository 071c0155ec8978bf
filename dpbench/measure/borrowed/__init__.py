"""Benchmarks that a project has already: those of asv and those of pytest-benchmark.

Each framework's own code finds a benchmark, sets it up and times its calls. These files read the samples one by one.

    lent             what is borrowed: a sample on request; the commit's packages
    asv_suite        asv_runner's discovery and benchmark classes
    pytest_suite     a pytest plugin that takes the place of the `benchmark` fixture's runner
    examine          one call: what it starts, calls and allocates

These files import no torch, and foreign code only when they are called.
"""
