"""The charts: pure functions from a machine's results to a panel, or None without data. Each names its fields.

times.py       which variant is faster, how far from the ideal, what a technique is worth, which is fastest where
devices.py     time by phase, memory, how busy the devices are, rounds along the run
links.py       bytes by link
projected.py   projected step times beside measured ones
"""
