"""The jobs of child processes, each beside the function that a parent calls.

Parents import nothing that is indented here. So these may import torch.

    probe.py          what this machine has, and whether the user's workloads load
        probe_child.py
    sweep.py          a sweep, from its plan to the records in its store
    budget.py         how many rounds fit into a budget
    round.py          one process for each round
        round_child.py    imports torch, and forks a child for each case
        worker.py         measures one case in one round
        ranks.py          the ranks of a case with one process per device
    launched/         a sweep over several machines
    count.py          the exact counters of cases and scripts
        count_child.py    one fork for each case
        scripts_child.py  runs scripts as ranks
    count_steps.py    counts for any batch, in a cache
    project_all.py    variants on a described machine
        ways_child.py     what the wrapper's "auto" takes there
    trace_all.py      one step of each variant
        trace_child.py    profiles one step

For a gate, whose parents are in gate/:

        listing_child.py  lists benchmarks of asv and pytest, and tries them
        compile_child.py  compiles a commit's Python files
        lockstep_child.py a round: blocks of steps of base, twin and head alternate
        lockstep_side.py  one side of a round: one commit's step
        hidden_work.py    what head does outside of its steps' times
        startup.py        times the start of each side
        borrowed.py       a benchmark of asv or pytest in a fork
        forks.py          a side as a fork: both ends of its pipe
"""
