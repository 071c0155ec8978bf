"""Results over time: one chart of ratios to the beginning, over commits, days or gates.

ratios.py    the chart, whatever the places in time are
records.py   a line for each case over commits or days, and each case's newest time over its oldest
gates.py     a line for each benchmark's base and head over gates
"""
