"""One process per device: the team, its counters, the time of its collectives; a script's collectives.

SCRIPTS.md is the manual of `dpbench counts --script`.
"""
