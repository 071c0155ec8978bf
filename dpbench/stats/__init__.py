"""The formulas of dpbench: Student's t, order statistics, shares, lasting steps."""
