"""The memory of simulated devices.

storages.py    the memory behind each CPU storage
allocator.py   addresses, as the CUDA caching allocator gives them
regions.py     the bytes that a tensor touches
races.py       two accesses to the same bytes that no wait orders
"""
