"""The charts: from a machine's results to a panel, or None without data. Pure.

time_charts.py    which variant is faster, how far from the ideal, what a technique is worth, projected times
device_charts.py  time by phase, rounds along the run
"""
