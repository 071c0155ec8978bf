"""Progress on standard error while children measure: a bar, a status, or lines."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar
from rich.text import Text

from dpbench.jobs.sweep import Progress
from dpbench.records.record import Outcome
from dpbench.text.outside import one_line
from dpbench.text.quantities import time_left

_PATIENCE_S = 5.0


@contextmanager
def stages(console: Console | None = None) -> Iterator[Callable[..., None]]:
    """Yield the callback for the stages of a command: the status on a terminal, else lines.

    It takes the stage, and the seconds that are left if they are known.
    """
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield lambda stage, left_s=None: _say(console, str(_Stage(stage, left_s)))
        return
    with console.status("", refresh_per_second=1) as status:
        yield lambda stage, left_s=None: status.update(_Stage(stage, left_s))


@contextmanager
def waiting(what: str, console: Console | None = None) -> Iterator[None]:
    """Show what is waited for: a status on a terminal, else a line after five seconds."""
    console = console or Console(stderr=True)
    if console.is_terminal:
        with console.status(what):
            yield
        return
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    busy = f"; the load average is {load:.1f} on {cores} cores, so this takes longer" if load > 2 * cores else ""
    teller = threading.Timer(_PATIENCE_S, _say, (console, f"{what}{busy}"))
    teller.daemon = True
    teller.start()
    try:
        yield
    finally:
        teller.cancel()


class _Stage:
    """A stage, and the time left whenever it is drawn."""

    def __init__(self, stage: str, left_s: float | None) -> None:
        self._stage, self._end_s = stage, None if left_s is None else time.monotonic() + left_s

    def __str__(self) -> str:
        left = "" if self._end_s is None else f"; {time_left(max(0.0, self._end_s - time.monotonic()))} left"
        return f"{self._stage}{left}"

    def __rich__(self) -> Text:
        return Text(one_line(str(self)))


def _say(console: Console, line: str) -> None:
    console.print(one_line(line), markup=False, highlight=False, soft_wrap=True)


@contextmanager
def progress_bar(console: Console | None = None) -> Iterator[Callable[[Progress], None]]:
    """Yield the callback for a sweep's progress.

    Failures and notes are lines of their own. Without a terminal, so is the end of each round, and there is no bar. In
    a notebook the bar is IPython's.
    """
    console = console or Console(stderr=True)
    say = partial(_say, console)

    def report(progress: Progress) -> None:
        last = progress.last
        if last is not None and last.outcome is not Outcome.OK:
            first_line = ((last.reason or "").splitlines() or [""])[0]
            say(f"{last.case.id} round {last.round}: {last.outcome}: {first_line}")
        if progress.note is not None:
            say(progress.note)

    def report_round(progress: Progress) -> None:
        report(progress)
        if progress.running is None and progress.note is None:
            say(f"round {progress.rounds_done} of {progress.rounds} done; {time_left(progress.seconds_left)} left")

    if console.is_jupyter:
        from IPython.display import ProgressBar

        line = ProgressBar(1)
        line.display()

        def move(progress: Progress) -> None:
            report(progress)
            line.total, line.progress = progress.total, progress.done

        yield move
        return
    if not console.is_terminal:
        yield report_round
        return
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]} left  {task.fields[running]}", markup=False),
    )
    # Once a second, so that the parent takes almost no CPU time from the child.
    with Bar(*columns, console=console, refresh_per_second=1, transient=True) as bar:
        task = bar.add_task("", total=None, left="", running="")

        def show(progress: Progress) -> None:
            report(progress)
            bar.update(
                task,
                completed=progress.done,
                total=progress.total,
                left=time_left(progress.seconds_left),
                running=progress.running.id if progress.running else "",
            )

        yield show
