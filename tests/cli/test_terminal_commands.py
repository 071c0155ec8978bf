"""No text from outside commands the terminal: factories, keys, names of asv, machines, commits."""

import io
import json
import sys

import pytest
from rich.console import Console

from dpbench import cli
from dpbench.cases.machine_info import Accelerator, MachineInfo
from dpbench.cli import asv as cli_asv
from dpbench.doctor.report import doctor_text
from dpbench.processes.runner import Progress
from dpbench.report.progress import progress_bar
from tests.records.making import case, failed

EVIL = "\x1b]0;title\x07\x1b[2J\x9b31m[/bold][red]"


@pytest.fixture
def call(monkeypatch, capfd, tmp_path):
    """Call the command line; return the exit code and both streams, which must not command a terminal."""
    monkeypatch.chdir(tmp_path)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["dpbench", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capfd.readouterr()
        assert all(c == "\n" or c.isprintable() for c in out + err), out + err
        return ended.value.code, out, err

    return call


def test_an_unknown_key_of_a_sweep_file(call, tmp_path):
    (tmp_path / "s.toml").write_text(f"{json.dumps(EVIL)} = 1")
    code, _, err = call("sweep", "s.toml")
    assert (code, "]0;title" in err, err.count("\n")) == (2, True, 1)


def test_a_file_of_that_name(call):
    code, _, err = call("sweep", f"{EVIL}.toml".replace("/", ""))
    assert (code, "cannot be read" in err) == (2, True)


def test_a_factory_that_raises(call, tmp_path):
    (tmp_path / "evil.py").write_text(f"def factory():\n    raise ValueError({EVIL!r})\n")
    code, _, err = call("compare", "--workloads", "evil:factory", "--rounds", "1")
    assert (code, "]0;title" in err, err.count("\n")) == (2, True, 1)


def test_a_name_of_a_machine(call, monkeypatch, tmp_path):
    machine = MachineInfo(python="3.11", torch="2", cpu_model="x", cores=2, memory_bytes=1)
    monkeypatch.setattr(cli_asv, "ask_machine", lambda: machine)
    (tmp_path / "m.json").write_text(json.dumps({"version": 1, EVIL: {}}))
    assert call("asv-machine", "--machine", f"x{EVIL}", "--machine-file", "m.json")[0] == 2


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


def test_records_with_unknown_keys(call, tmp_path):
    (tmp_path / "r.jsonl").write_text(json.dumps({"schema": 2, EVIL: 1}) + "\n")
    assert call("export", "r.jsonl")[0] == 2
