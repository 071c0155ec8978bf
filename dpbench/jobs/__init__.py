"""The jobs of child processes, each beside the function that a parent calls.

Parents import no program (`_child`) and nothing that is indented here. So these may import torch.

    probe.py          what this machine has, and whether the user's workloads load
        probe_child.py
    sweep.py          a sweep, from its plan to the records in its store
    budget.py         how many rounds fit into a budget, and how long each case samples
    round.py          one process for each round, which forks a child for each case
        round_child.py    imports torch, and forks
        worker.py         measures one case in one round
        ranks.py          starts the other ranks of a case with one process per device, and connects them
    launched/         a sweep over several machines
    count.py          the exact counters of cases, and what the ranks of a user's scripts send
        count_child.py    one fork for each case
        scripts_child.py  runs scripts as ranks
    count_steps.py    counts at small batches, for any batch, in a cache
    project_all.py    variants on a described machine
        ways_child.py     what the wrapper's "auto" takes there
    trace_all.py      one step of each variant, simulated or profiled
        trace_child.py    profiles one step

For a gate, whose parents are in gate/:

        listing_child.py  lists the benchmarks of asv and pytest that a gate means, and tries them
        compile_child.py  compiles a commit's Python files, once for all forks
        lockstep_child.py a round: blocks of steps of base, twin and head alternate
        lockstep_side.py  one side of a round: it holds one commit's step
        startup.py        times the import, the construction and the first forward of each side
        borrowed.py       a benchmark of asv or pytest in a fork: tried, counted, or as a side
        forks.py          a side as a fork: both ends of its pipe
"""
