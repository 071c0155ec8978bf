"""A step's tasks, their order, and their times in all draws of a machine's parameters."""
