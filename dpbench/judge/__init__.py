"""One rule for what is slower, at one look (decision.py) or several (repeated.py), and the formulas beneath it."""
