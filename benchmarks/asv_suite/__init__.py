"""What asv follows from commit to commit: seconds, bytes and counts, all of which are better when lower.

Everything here and all of dpbench but `dpbench.parallel` comes from the working tree (benchmarks/asv_overlay.py).
Importing touches neither torch nor NVML: asv imports all modules for every single combination of parameters.
"""
