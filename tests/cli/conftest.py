import os
import subprocess
import sys
from pathlib import Path

import pytest

from dpbench import cli
from tests.zygote import children_of_a_zygote  # noqa: F401  # a fixture

ROOT = Path(__file__).parents[2]


def grown(seconds: float) -> float:
    """Return a time limit that grows with the load: that of a machine with a process for each core or fewer."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


@pytest.fixture
def dpbench_process(tmp_path):
    """Call the command line in an empty folder and a process of its own; the call returns the finished process."""

    def call(*words, timeout_s=240, **environment):
        return subprocess.run(
            [sys.executable, "-m", "dpbench", *map(str, words)],
            check=False,
            cwd=tmp_path,
            env=os.environ
            | {"PYTHONPATH": str(ROOT), "GIT_DIR": str(tmp_path / "none")}
            | environment,  # so that no commit can change meanwhile
            capture_output=True,
            text=True,
            timeout=grown(timeout_s),
        )

    return call


@pytest.fixture
def call(monkeypatch, capsys, tmp_path):
    """Call the command line in this process, in an empty folder; the call returns exit code, output and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["dpbench", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code, *capsys.readouterr()

    return call


@pytest.fixture
def dpbench(call, monkeypatch, tmp_path):
    """Call the command line in this process; the call returns what a finished process has."""

    def done(*words, **environment):
        for name, value in {"PYTHONPATH": ROOT, "GIT_DIR": tmp_path / "none", "COLUMNS": 80, **environment}.items():
            monkeypatch.setenv(name, str(value))
        return subprocess.CompletedProcess(words, *call(*words))

    return done
