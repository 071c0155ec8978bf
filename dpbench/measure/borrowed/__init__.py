"""A project's benchmarks of asv and pytest-benchmark, set up and timed by their framework's own code.

These files import no torch, and foreign code only when they are called.
"""
