"""Is this machine fit to measure on? The parent imports neither torch nor NVML, and no setting of the machine is
changed. See README.md.
"""
