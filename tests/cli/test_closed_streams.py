"""A verdict's exit code does not depend on who reads: pipes that break, full and closed standard streams."""

import os
import subprocess
import sys

import pytest

from tests.cli.conftest import ROOT

GATE = """
import sys
from dpbench import cli
from dpbench.cli import gate as cli_gate
from tests.report.gate.making_gate import PASS, SLOWER
found = {"slower": SLOWER, "pass": PASS}[sys.argv.pop(1)]
cli_gate.run_gate = lambda asked, progress: found
sys.argv[1:1] = ["gate", "--base", "main"]
cli.main()
"""
OTHERS = """
import sys
from dpbench import cli
from dpbench.cli import counts as cli_counts, doctor as cli_doctor, measured as cli_measured
from dpbench.doctor.findings import Finding, Severity
from dpbench.cases.machine_info import MachineInfo
machine = MachineInfo(python="3.11", torch="2.13.0", cpu_model="a CPU", cores=2, memory_bytes=2**30)
cli_doctor.ask_machine = lambda: machine
cli_doctor.ask_health = lambda: [Finding(what="load", severity=Severity.UNRELIABLE, value="much")]
cli_measured.count_all = lambda cases, events=None: ()
cli_counts.countable = lambda records: records
cli.main()
"""
CASES = {
    "slower": (GATE, ["slower"], 1),
    "pass": (GATE, ["pass"], 0),
    "slower, json": (GATE, ["slower", "--json", "--github"], 1),
    "pass, json": (GATE, ["pass", "--json"], 0),
    "no base": (GATE, ["pass", "--tiers", "7"], 2),
    "list": (OTHERS, ["list"], 0),
    "list, json": (OTHERS, ["list", "--json"], 0),
    "unreliable": (OTHERS, ["doctor", "--quick"], 1),
    "nothing counted": (OTHERS, ["counts"], 1),
    "wrong input": (OTHERS, ["compare", "--rounds", "0"], 2),
    "help": (OTHERS, ["compare", "--help"], 0),
    "version": (OTHERS, ["--version"], 0),
}
READERS = {
    "read": "{} >out",
    "reader is gone": "{} | true",
    "both are gone": "{} 2>&1 | true",
    "one line": "{} | head -1",
    "no output": "{} >&-",
    "no errors": "{} 2>&-",
    "neither": "{} >&- 2>&-",
    "nothing at all": "{} <&- >&- 2>&-",
    "errors on a full disk": "{} 2>/dev/full",
}


def run(tmp_path, script, words, reader):
    """Run the script in bash; return its own exit code and the process."""
    (tmp_path / "script.py").write_text(script)
    command = " ".join(["env", '"$python"', "script.py", *words])
    done = subprocess.run(
        ["bash", "-c", reader.format(f"{{ {command}; echo $? >code; }}")],
        check=False,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "python": sys.executable},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return int((tmp_path / "code").read_text()), done


ALL = [(case, reader) for case in CASES for reader in READERS]
QUICK = [(case, reader) for case, reader in ALL if case in ("slower", "list") or reader == "both are gone"]


@pytest.mark.parametrize(("case", "reader"), ALL if os.environ.get("DPBENCH_TEST_ALL") else QUICK)
def test_the_exit_code_stays(tmp_path, case, reader):
    script, words, expected = CASES[case]
    code, done = run(tmp_path, script, words, READERS[reader])
    assert code == expected, done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("name", ["slower", "pass, json", "list", "unreliable", "version", "help"])
def test_a_full_disk_is_a_failure(tmp_path, name):
    script, words, _ = CASES[name]
    code, done = run(tmp_path, script, words, "{} >/dev/full")
    assert code == 3
    assert done.stderr.splitlines()[-1] == "dpbench: standard output: cannot be written: No space left on device"
    assert "Traceback" not in done.stderr


def test_a_stream_of_another_encoding_has_escapes(tmp_path):
    script = 'import sys; from dpbench import cli; sys.argv = ["dpbench", "sweep", "\\u2192.toml"]; cli.main()'
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "script.py"],
        check=False,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii:strict"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, "\\u2192.toml" in done.stderr) == (2, True), done.stderr
