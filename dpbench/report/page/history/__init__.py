"""The page over many commits, days or gates, and the page that compares two commits.

changes.py     lasting changes of step times, and their words
tracks.py      records by commit or day: each case's times in order of time
panels.py      the lines over commits or days, and the table of lasting changes
line_chart.py  the chart of lines
gate_file.py   the gate's history: which files hold it, and their lines
gates.py       its gates by machine: each benchmark's times in order of time
gate_panels.py the section of one machine's gates
commits.py     two commits: which records are theirs, and each case's ratio
compared.py    the page of the two commits
"""
