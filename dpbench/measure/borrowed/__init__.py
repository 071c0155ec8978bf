"""Benchmarks that a project has already, of asv and pytest-benchmark, set up and timed by their framework's own code.

    lent             what is borrowed: a sample on request; the commit's packages
    asv_suite        asv_runner's discovery and benchmark classes
    pytest_suite     a pytest plugin that takes the place of the `benchmark` fixture's runner
    examine          one call: what it starts, calls and allocates

These files import no torch, and foreign code only when they are called.
"""
