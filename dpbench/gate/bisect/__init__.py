"""`dpbench gate --bisect GOOD BAD`: the first commit that made a counter or a step time worse.

search.py       binary search over answers, with commits that give none    pure
result.py       the steps and the outcome as data
oracle.py       the answer of one commit, from counts or from times
run_bisect.py   the composition
"""
