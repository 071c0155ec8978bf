"""The parent process of a sweep, a count or a gate's round.

A crash, a hang or a lost GPU costs one record and not the sweep.

    run_sweep.py      a sweep, from its plan to the records in its store
    runner.py         the rounds: one record per case and round, within the time budget
    budget.py         how many rounds fit into a budget, and how long each case samples
    rounds.py         the parent's end of a round, one process that forks a child for each case
    other_load.py     how busy other processes kept the cores meanwhile
    count_all.py      the exact counters of cases
    count_scripts.py  what the ranks of a user's scripts send
    trace_all.py      one step of each variant, simulated or profiled
    project_all.py    variants on a machine: count_steps.py counts small batches, ways.py asks the wrapper's rules
    ask.py            what this machine has, and whether the user's workloads load
    messages.py       the JSON that parent and children send to each other
    launch.py         start one child, wait for its end, keep its record and its last output
    interpret.py      turn the end of a child into a record, with the reason for a failure
    process_tree.py   a child dies with its parent, and a launch leaves no process behind
    fence.py          what the code of a commit may write to
    watcher.py        the process that kills the rest of a child's tree if SIGKILL ends the parent
    start.py          the file that a child runs first, so that it imports its parent's dpbench
    wrapper_of.py     take `dpbench.parallel` from the folder of another commit
    child/            the programs that the children run
"""
