"""Runs every ``sim_*.py`` file on simulated devices, each in a process of its own.

The simulator changes torch for the life of a process, and torch takes seconds to import. So each pytest process starts
one server process that has imported torch, and the server forks a process for each file. One file alone runs by
``pytest tests/test_simulated.py -k sim_races``, or by hand (see `tests/simulated.py`).
"""

import multiprocessing
from pathlib import Path

import pytest

from tests import simulated
from tests.simulated import needs_simulator

TESTS = Path(__file__).parent
FILES = sorted(TESTS.rglob("sim_*.py"))
LIMIT_S = 280


@pytest.fixture(scope="session")
def server():
    """Return the multiprocessing context whose processes are forked with torch imported."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "pytest", "hypothesis", "dpbench.parallel", "dpbench.simulator.backend"])
    return context


@needs_simulator
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_on_simulated_devices(path, server, tmp_path, monkeypatch):
    monkeypatch.chdir(TESTS.parent)
    output = tmp_path / "output"
    output.touch()
    child = server.Process(target=simulated.run_and_exit, args=([str(path)], str(output)))
    child.start()
    try:
        child.join(LIMIT_S)
    finally:
        child.kill()  # no effect on a child that has ended
        child.join()
    assert child.exitcode == 0, f"{path}: exit status {child.exitcode}\n{output.read_text()}"


def test_every_file_has_a_name_of_its_own():
    """So that ``-k`` selects one."""
    assert len({path.stem for path in FILES}) == len(FILES)
