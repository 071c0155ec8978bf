"""The programs that child processes run.

The parent starts them and never imports them, so they may import torch.

    round.py           a round of a sweep: imports torch, and forks a worker for each case
    worker.py          measure one case in one round
    ranks.py           start the other ranks of a case with one process per device, and connect them
    probe.py           report what this machine has
    count.py           count cases: one fork of this process for each
    trace.py           profile one step
    auto_choice.py     what the wrapper's "auto" takes on described machines
    scripts.py         run a user's scripts as ranks, and count what they send
    lockstep.py        a gate's round: alternate blocks of steps of base, twin and head
    lockstep_side.py   one side of a gate's round: it holds one commit's step
    startup.py         time the import, the construction and the first forward of each side
    fenced.py          run a commit's command, such as its build, behind the fence
    compile.py         compile a commit's Python files, once for all forks
    forks.py           a side as a fork, and the pipe to it
    serving.py         what every side does: it takes blocks on request
    listing.py         list the benchmarks of asv and pytest that a gate means, and try them
    borrowed.py        one of them in a fork: tried, counted, or as a side
    process.py         what every child does while it imports, and when it ends
"""
