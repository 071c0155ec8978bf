"""Progress on a terminal and outside one."""

from io import StringIO

from rich.console import Console

from dpbench.report.progress import stages


def test_a_stage_is_a_line_outside_a_terminal():
    console = Console(file=StringIO(), width=20)
    with stages(console) as say:
        say("the first run begins; at most 10:00 left")
        say("[red]two\x1b[2J")
    assert console.file.getvalue() == "the first run begins; at most 10:00 left\n[red]two [2J\n"


def test_a_stage_is_the_status_on_a_terminal():
    console = Console(file=StringIO(), force_terminal=True, width=80)
    with stages(console) as say:
        say("the first run begins")
    shown = console.file.getvalue()
    assert "the first run begins" in shown
    assert shown.endswith("\x1b[2K")  # erased
