"""The charts: each file has one, a pure function from a machine's results to a panel, or None without data.

`interval_rows.py` is no chart; it is the drawing that the charts of ratios share.
"""
