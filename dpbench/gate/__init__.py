"""The gate: judge whether one commit's wrapper is slower than another's. README.md is the manual.

Three names are used everywhere in this room:

    base    the commit that the other one is compared with
    head    the commit that is judged; its revision is None for the working tree
    twin    a second process of base: what differs between base and its twin is noise

`run.py` composes the stages of a gate. Each has what the stages before it returned:

    prepare       check the request; look up the commits (revisions), the settings, the machine and the history
    sides         a folder of each commit, what is built of it, and the launcher that fences its code
    benchmarks    which benchmarks both commits have, and which are new
    count_sides   tier 0: exact counts of the cases in tier0_cases; counters says what is worse, causes which code it is
    time_sides    tier 1: rounds until all is decided; time_verdict is the rule at each interim analysis
    verdict       one verdict without what is accepted, tolerated or noted; tier 2, drifts in the history; its words
    judgement     the result as plain data, which `dpbench.report.gate` prints
    history       a line for each gate, and what earlier lines say of the machine

`dpbench init` writes first_settings, and the templates for CI in workflows/.
"""
