"""`dpbench elastic` on the command line."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dpbench.elastic.elastic_record import ElasticRecord, EventKind, RunScheme
from dpbench.engine.other_load import LoadMeter, OtherLoad
from dpbench.records.record import Outcome
from dpbench.records.row import parse_line
from tests.engine.conftest import marked_processes
from tests.hostile.attack import attack

SMALL = ("--workload", "mlp/tiny", "--batch", 8, "--steps", 9, "--checkpoint-every", 5)


@pytest.mark.timeout(300)
def test_a_killed_worker_costs_an_outage_and_no_bit(dpbench_process, tmp_path):
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    browser.chmod(0o755)
    words = ("--plan", "kill@7:1", "--json", "--open", "--checkpoints", "saved")
    done = dpbench_process("elastic", *SMALL, *words, timeout_s=290, BROWSER=f"{browser} %s")
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if " run" in line]
    assert [re.sub(r"\d+:\d\d$", "M:SS", line) for line in said] == [
        "undisturbed run begins; at most 10:00 left",
        "undisturbed run: ok after M:SS",
        "elastic run begins; at most 5:00 left",
        "elastic run: ok after M:SS",
    ]
    undisturbed, elastic = json.loads(done.stdout)["runs"]
    assert (undisturbed["outcome"], undisturbed["outages"]) == ("ok", [])
    assert (elastic["outcome"], elastic["same_end"], elastic["steps_lost"]) == ("ok", True, 0)
    (outage,) = elastic["outages"]
    assert outage["redone_steps"] == 2
    assert set(outage["parts_s"]) == {"noticing", "stopping", "rendezvous", "start", "restore", "redone"}
    assert all(seconds > 0 for seconds in outage["parts_s"].values())
    assert sum(outage["parts_s"].values()) == pytest.approx(outage["outage_s"])
    (page,) = (tmp_path / "results" / "runs").glob("elastic-*.html")
    assert done.stderr.endswith(f"dpbench: page: {page.relative_to(tmp_path)}\n")
    assert "What does an outage cost?" in page.read_text()
    assert (tmp_path / "opened").read_text() == f"{page.as_uri()}\n"
    _records_hold_the_stamps(tmp_path)
    assert list((tmp_path / "saved").iterdir()) == []


def _records_hold_the_stamps(folder: Path) -> None:
    (path,) = (folder / "results" / "runs").glob("elastic-*.jsonl")
    records = [parse_line(line, ElasticRecord) for line in path.read_bytes().splitlines()]
    assert [record.scheme for record in records] == list(RunScheme)
    assert [record.outcome for record in records] == [Outcome.OK, Outcome.OK]
    assert all(record.environment for record in records)
    faults = [[event.kind for event in record.events].count(EventKind.FAULT) for record in records]
    assert faults == [0, 1]


@pytest.mark.parametrize(
    ("words", "code", "times"), [((), 1, 1), (("--steps=1",), 2, 0), (("--results=/proc/none",), 2, 0)]
)
def test_a_busy_machine_is_named_once_after_the_refusals(monkeypatch, words, code, times):
    monkeypatch.setattr(LoadMeter, "read", lambda *_: OtherLoad(1.9, 2))
    answer = attack(("elastic", *map(str, SMALL), *words))
    assert answer.code == code, answer.err
    warning = "warning: other processes keep 1.9 of 2 cores busy: this takes longer, and outages are longer too"
    assert answer.err.count("busy") == times
    assert answer.err.startswith(f"dpbench: {warning}\nundisturbed run begins; ") is bool(times)


@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("number", "plan"),
    [(signal.SIGKILL, "kill@7:1"), (signal.SIGKILL, "leave@1:1,join@7"), (signal.SIGINT, "kill@7:1")],
)
def test_no_process_and_no_temporary_folder_outlives_the_command(tmp_path, number, plan):
    mark = f"elastic-{os.getpid()}-{number}"
    command = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "dpbench",
            "elastic",
            *map(str, SMALL),
            "--plan",
            plan,
            "--results",
            str(tmp_path / "runs"),
        ],
        env=os.environ | {"DPBENCH_TEST_MARK": mark, "TMPDIR": str(tmp_path)},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline_s = time.monotonic() + 150
    while sum("dpbench.elastic.child.trainer" in words for words in marked_processes(mark).values()) < 2:
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
    command.send_signal(number)
    assert command.wait(60) == (130 if number == signal.SIGINT else -signal.SIGKILL)
    kept = {"runs", "torchinductor_root"}  # the second is torch's own cache
    while left := [*marked_processes(mark).values(), *({path.name for path in tmp_path.iterdir()} - kept)]:
        assert time.monotonic() < deadline_s, left
        time.sleep(0.1)
    if number == signal.SIGINT:
        assert list((tmp_path / "runs").iterdir()) == []
