"""The charts: each file has one, a pure function from a machine's results to a panel, or None without data."""
