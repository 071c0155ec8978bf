"""The page over many commits or days, and the page that compares two commits.

tracks.py   records by commit or day; each case's times in order of time, and where they changed for long
panels.py   the lines over commits or days, and the table of lasting changes
commits.py  two commits: which records are theirs, and each case's ratio
compared.py the page of the two commits
"""
