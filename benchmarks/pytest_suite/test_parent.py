"""The share of a core that the parent process uses while a child measures."""

import os
import time

from rich.console import Console

from dpbench.engine.launch import launch
from dpbench.jobs.sweep import Progress
from dpbench.report.progress import progress_bar

CHILD_S = 10


def test_cpu_share_of_the_parent(print_row, share):
    child_s = share(CHILD_S)
    with (
        open(os.devnull, "w") as nowhere,
        progress_bar(Console(file=nowhere, force_terminal=True)) as progress,
    ):
        progress(Progress(done=1, total=25, rounds_done=0, rounds=5, seconds_left=100.0))
        before_s, start_s = time.process_time(), time.monotonic()
        ended = launch(["sh", "-c", f"sleep {child_s}"], "", timeout_s=60.0)
        share = (time.process_time() - before_s) / (time.monotonic() - start_s)
    assert ended.returncode == 0
    print_row(f"parent with its progress bar: {share:.2%} of a core while a child runs for {child_s} s")
