"""The page over many commits, days or gates, and the page that compares two commits.

lines.py     lines of step times in order of time, and their lasting changes
records.py   a line for each case over commits or days
gates.py     a line for each benchmark over gates
section.py   the chart of the lines, the table and the sentences of their changes
compared.py  two commits: each case's ratio, and the page of them
"""
