"""The gate: judge whether one commit's wrapper is slower than another's.

Three names are used everywhere in this room:

    base    the commit that the other one is compared with
    head    the commit that is judged; its revision is None for the working tree
    twin    a second process of base: what differs between base and its twin is noise

A gate passes these files in this order, and `run_gate.py` composes them:

    prepare     check the request, find the two commits (revisions), read the benchmarks (settings) and the history
    build, borrowed   install both commits for benchmarks of asv and pytest, and look these up
    new_benchmarks    set aside what only head has
    contents    fence the measured code, and see that both folders stay as they are
    tier0_cases, tier0    tier 0: the cases; exact counts of both commits
    scripts     tier 0 of scripts: what their ranks send
    tier1       tier 1: step times, by take_round (one round), ratio (its contrasts), verdict (interim analyses)
    drift       tier 2: change points in the series of history
    overall_verdict, false_alarms    one verdict without accepted and traded regressions; how often it is wrong
    judgement   the result, which `dpbench.report.gate` prints

`dpbench init` writes first_settings, and the templates for CI in workflows/.

README.md is the manual.
"""
