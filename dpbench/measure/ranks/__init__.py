"""One process per device: the team of all ranks, its counters, and the time of its collectives; a script's collectives.

SCRIPTS.md is the manual of `dpbench counts --script`.
"""
