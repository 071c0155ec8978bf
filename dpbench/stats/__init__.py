"""Student's t, order statistics, shares, estimates over rounds, lasting steps.

Nothing else in dpbench has formulas.
"""
