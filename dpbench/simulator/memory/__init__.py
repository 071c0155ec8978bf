"""The memory of simulated devices: addresses, the bytes of tensors, races between accesses.

storages.py    the memory behind each CPU storage
allocator.py   addresses, as the CUDA caching allocator gives them
regions.py     the bytes that a tensor touches
races.py       two accesses to the same bytes that no wait orders
"""
