"""Progress on a terminal and outside one."""

import time
from io import StringIO

from rich.console import Console

from dpbench.report import progress
from dpbench.report.progress import stages, waiting


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


def test_the_time_left_goes_on_while_a_stage_lasts(monkeypatch):
    console = Console(file=StringIO(), width=20)
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with stages(console) as say:
        say("round 1", 65.0)
    assert console.file.getvalue() == "round 1; 1:05 left\n"
    stage = progress._Stage("round 1", 65.0)
    now[0] = 130.0
    assert stage.__rich__().plain == "round 1; 0:35 left"
    now[0] = 900.0
    assert stage.__rich__().plain == "round 1; 0:00 left"


def test_a_long_wait_is_a_line_and_a_short_one_is_none(monkeypatch):
    monkeypatch.setattr(progress, "_PATIENCE_S", 0.01)
    monkeypatch.setattr(progress.os, "getloadavg", lambda: (9.0, 0, 0))
    monkeypatch.setattr(progress.os, "cpu_count", lambda: 2)
    console = Console(file=StringIO(), width=20)
    with waiting("counting 3 cases", console):
        while not console.file.getvalue():
            time.sleep(0.001)
    line = "counting 3 cases; the load average is 9.0 on 2 cores, so this takes longer\n"
    assert console.file.getvalue() == line
    monkeypatch.setattr(progress, "_PATIENCE_S", 60.0)
    with waiting("counting", console):
        pass
    assert console.file.getvalue() == line
