"""The child that examines the machine. Only these files of the room import torch and NVML.

    examine.py      the process: runs the examinations in order, and writes the findings to a pipe
    host.py         CPU load, limits, clocks, NUMA nodes and memory, from files of the kernel
    proc_files.py   parsers for these files
    packages.py     whether another project called dpbench is installed
    gpus.py         what NVML reports of each GPU
    links.py        peer access between GPUs, and whether copies arrive intact
    bandwidth.py    copy rates of the host's memory and of each accelerator

The order matters: the host is examined before torch is imported, and the GPUs before one is used.
"""
