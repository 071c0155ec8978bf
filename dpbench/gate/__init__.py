"""The gate: judge whether one commit's wrapper is slower than another's.

Three names are used everywhere in this room:

    base    the commit that the other one is compared with
    head    the commit that is judged; its revision is None for the working tree
    twin    a second process of base: what differs between base and its twin is noise

A gate passes these files in this order, and `run_gate.py` composes them:

    prepare     check the request, find the two commits (revisions), read the benchmarks (settings) and the history
    build, borrowed   install both commits for benchmarks of asv and pytest, and look these up
    new_benchmarks    set aside what only head has
    counters    tier 0: exact counts of both commits
    tier1       tier 1: step times, by take_round (one round), ratio (its contrasts), verdict (interim analyses)
    drift       tier 2: change points in the series of history
    accepted    mark the regressions that the project accepts
    traded      mark the Python calls that a measured time outvotes
    overall_verdict, false_alarms    one verdict, and how often it is wrong on such a machine
    judgement   the result, which `dpbench.report.gate` prints

README.md is the manual.
"""
