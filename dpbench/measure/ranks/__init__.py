"""One process per device: the team of all ranks, its counters, and the time of its collectives."""
