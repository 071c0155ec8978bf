"""Kill a sweep, or one of its children, at random moments, and check what is left.

    python -m benchmarks.kill_storm --kills 100

The parent, its launcher and its store are real. The children send a record at once, and those of odd rounds start a
grandchild in a session of its own. After the end of each parent no process may be left, and each record that was
complete must still exist, once. At the end one more call must finish the sweep.
"""

import argparse
import os
import subprocess
import sys
import time
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import psutil

from benchmarks.about import heading
from benchmarks.storm_parent import MACHINE, spec_of
from dpbench.cases.plan import plan
from dpbench.records.record import Outcome, Record
from dpbench.records.store import read_rows

_ROOT = Path(__file__).parents[1]
_ENDLESS = 1000
_LATEST_S = 0.8
_PATIENCE_S = 30.0


@dataclass
class Report:
    """`longest_s` is the longest time that a process outlived its killed parent."""

    parents_killed: int = 0
    children_killed: int = 0
    records: int = 0
    failed: int = 0
    longest_s: float = 0.0


class Storm:
    """Raises AssertionError if a process or a wrong record is left."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.path = folder / "sweep.jsonl"
        self.report = Report()
        self._rng = Random(seed)
        self._mark = uuid.uuid4().hex
        self._parent: subprocess.Popen[bytes] | None = None
        self._before = b""

    def run(self, kills: int) -> Report:
        """Kill the parent or a child `kills` times, then finish the sweep."""
        for _ in range(kills):
            if self._parent is None:
                self._parent = self._start(_ENDLESS)
            time.sleep(self._rng.uniform(0, _LATEST_S))
            if self._rng.random() < 0.5:
                self._kill_parent()
            else:
                self._kill_child()
        if self._parent is not None:
            self._kill_parent()
        self._finish()
        return self.report

    def _start(self, rounds: int) -> subprocess.Popen[bytes]:
        environment = os.environ | {"PYTHONPATH": str(_ROOT), "DPBENCH_TEST_MARK": self._mark}
        return subprocess.Popen(
            [sys.executable, "-m", "benchmarks.storm_parent", str(self.path), str(rounds)], cwd=_ROOT, env=environment
        )

    def _kill_parent(self) -> None:
        assert self._parent is not None
        self._parent.kill()
        killed_s = time.monotonic()
        assert self._parent.wait() == -9, "the parent ended by itself"
        self._parent = None
        while self._left():
            assert time.monotonic() - killed_s < _PATIENCE_S, f"left: {self._left()}"
            time.sleep(0.005)
        self.report.longest_s = max(self.report.longest_s, time.monotonic() - killed_s)
        self.report.parents_killed += 1
        self._check_records()

    def _kill_child(self) -> None:
        """A random descendant. The parent goes on."""
        assert self._parent is not None
        deadline_s = time.monotonic() + _PATIENCE_S
        while not (children := psutil.Process(self._parent.pid).children(recursive=True)):
            assert self._parent.poll() is None, "the parent ended by itself"
            assert time.monotonic() < deadline_s, "no child was started"
            time.sleep(0.001)
        try:
            self._rng.choice(children).kill()
        except psutil.NoSuchProcess:
            return  # the child has ended already
        self.report.children_killed += 1

    def _left(self) -> list[str]:
        """Commands of all processes that carry this storm's mark in their environment.

        The mark is inherited across sessions and dead parents. Zombies have no environment.
        """
        commands = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if f"DPBENCH_TEST_MARK={self._mark}".encode() in (folder / "environ").read_bytes():
                    commands.append((folder / "cmdline").read_text())
            except OSError:
                continue
        return commands

    def _check_records(self) -> None:
        if not self.path.exists():
            return
        now = self.path.read_bytes()
        whole = now[: now.rfind(b"\n") + 1]
        assert whole.startswith(self._before), "a finished record is lost or changed"
        self._before = whole
        repeated = [
            key for key, times in Counter(r.key for r in read_rows(self.path, Record).rows).items() if times > 1
        ]
        assert not repeated, f"more than once: {repeated}"

    def _finish(self) -> None:
        """Run the sweep once more, to two rounds beyond the last record, and check all records."""
        started = read_rows(self.path, Record).rows if self.path.exists() else ()
        rounds = max((record.round for record in started), default=0) + 2
        assert self._start(rounds).wait(10 * _PATIENCE_S) == 0
        self._check_records()
        assert not self._left()
        records = read_rows(self.path, Record).rows
        wanted = {(case.id, number) for case in plan(spec_of(rounds), MACHINE).cases for number in range(rounds)}
        assert {record.key for record in records} == wanted, "records of the plan are missing"
        self.report.records = len(records)
        self.report.failed = sum(record.outcome is not Outcome.OK for record in records)
        assert self.report.failed <= self.report.children_killed


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kill_storm")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(heading("benchmarks.kill_storm"))
    start_s = time.monotonic()
    with TemporaryDirectory() as folder:
        report = Storm(Path(folder), options.seed).run(options.kills)
    print(
        f"killed {report.parents_killed} parents and {report.children_killed} children in "
        f"{time.monotonic() - start_s:.0f} s: {report.records} records, each once, {report.failed} of them of killed "
        f"children, none lost; the last process was gone {report.longest_s * 1000:.0f} ms after its parent at most"
    )


if __name__ == "__main__":
    main()
