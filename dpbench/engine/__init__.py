"""Every job starts, watches and ends a child process here: a crash, a hang or a lost GPU costs one answer.

launch.py        start one child, wait for its end, keep its record and its last output
start.py         the file that a child runs first, so that it imports its parent's dpbench
child.py         what every child does while it imports, and when it ends
task.py          what children are asked, and what they answer
fork.py          the one place that forks
messages.py      the JSON that parent and children send to each other
interpret.py     turn the end of a child into a record, with the reason for a failure
process_tree.py  a child dies with its parent, and a launch leaves no process behind
watcher.py       the process that kills the rest of a child's tree if SIGKILL ends the parent
fence.py         what the code of a commit may write to
wrapper_of.py    take `dpbench.parallel` from the folder of another commit
other_load.py    how busy other processes kept the cores meanwhile
"""
