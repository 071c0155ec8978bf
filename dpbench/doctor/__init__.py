"""The room of `dpbench doctor`: is this machine fit to measure on? See README.md.

The parent imports neither torch nor NVML. Nothing here changes a setting of the machine.
"""
