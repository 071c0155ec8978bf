"""Statistics: Student's t, order statistics, shares, estimates over rounds.

Nothing else in dpbench has formulas.
"""
