"""No text of a record or a machine commands the terminal. `rows` and `attack` say so of files and options."""

import io

from rich.console import Console

from dpbench.cases.machine_info import Accelerator, MachineInfo
from dpbench.doctor.health import doctor_text
from dpbench.jobs.sweep import Progress
from dpbench.report.progress import progress_bar
from tests.records.making import case, failed

EVIL = "\x1b]0;title\x07\x1b[2J\x9b31m[/bold][red]"


def test_the_reason_of_a_failure_during_a_run():
    text = io.StringIO()
    with progress_bar(Console(file=text)) as show:
        for reason in (EVIL, "", "\n"):
            last = failed(case(), 0, "crashed", reason)
            show(Progress(1, 2, 1, 2, seconds_left=1.0, last=last))
    assert "crashed: ]0;title" in text.getvalue().replace("  ", " ")
    assert all(c == "\n" or c.isprintable() for c in text.getvalue())


def test_what_the_machine_calls_itself():
    gpu = Accelerator(device="cuda:0", name=EVIL, memory_bytes=1)
    machine = MachineInfo(
        python="3", torch=None, torch_error=EVIL, cpu_model=EVIL, cores=2, memory_bytes=1, accelerators=(gpu,)
    )
    console = Console(file=io.StringIO(), width=200)
    console.print(doctor_text(machine, []))
    assert "[/bold][red]" in console.file.getvalue()
