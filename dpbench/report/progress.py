"""The bar on stderr while children measure."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

from dpbench.results.record import Outcome
from dpbench.run.runner import Progress


@contextmanager
def progress_bar(console: Console) -> Iterator[Callable[[Progress], None]]:
    """Yields what `runner.run` calls as it proceeds. Without a terminal only failures are told, a line each."""
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]} left  {task.fields[running]}", markup=False),
    )
    # Once a second: more would put the parent's work beside the child's.
    with Bar(*columns, console=console, refresh_per_second=1, transient=True) as bar:
        task = bar.add_task("", total=None, left="", running="")

        def show(progress: Progress) -> None:
            last = progress.last
            if last is not None and last.outcome is not Outcome.OK:
                first_line = (last.reason or "").splitlines()[0]
                console.print(f"{last.case.id} round {last.round}: {last.outcome}: {first_line}", markup=False)
            bar.update(
                task,
                completed=progress.done,
                total=progress.total,
                left=time_left(progress.seconds_left),
                running=progress.running.id if progress.running else "",
            )

        yield show


def time_left(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
