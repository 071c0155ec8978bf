"""A round is one process that forks a child for each case; with real processes, but without torch."""

import json
import os
import signal
import sys
from multiprocessing import Pipe
from pathlib import Path

import psutil
import pytest

from dpbench.cases.case import Case
from dpbench.engine.interpret import interpret
from dpbench.engine.launch import Exit
from dpbench.engine.messages import Job
from dpbench.jobs.round import RoundProcesses, receive_exit, send_exit
from dpbench.records.record import Outcome
from tests.engine.conftest import marked_processes, wait_until

CHILD = """
import ctypes, json, os, signal, subprocess, sys, time
from dpbench.jobs.round_child import serve
from dpbench.engine.process_tree import die_with_parent
from tests.fakes import ok_record

def measured(job, place):
    act = json.loads(os.environ["ACTS"]).get(str(job.case.seed), "")
    rank = 0 if place is None else place.rank
    print(f"rank {rank} of seed {job.case.seed}, session {os.getsid(0) == os.getpid()}", flush=True)
    exec(act)
    return ok_record(job, (os.getppid(), os.getpid(), 1.0))

die_with_parent(int(sys.argv[4]))
serve(measured, int(sys.argv[2]))
"""


@pytest.fixture
def acts(monkeypatch):
    """What the children do, as Python source by the seed of their case."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))

    def setting(**sources):
        monkeypatch.setenv("ACTS", json.dumps({name.removeprefix("seed"): act for name, act in sources.items()}))

    setting()
    return setting


@pytest.fixture
def processes(acts):
    round_processes = RoundProcesses([sys.executable, "-c", CHILD])
    yield round_processes
    round_processes.end_round()


def job_of(seed, number=0, variant="naive"):
    case = Case(variant=variant, workload="mlp/tiny", batch=8, devices=("cpu", "cpu"), threads=2, seed=seed)
    return Job(run="r1", case=case, round=number, sampling_s=1.0)


def measure(processes, seed, number=0, timeout_s=60.0, **options):
    job = job_of(seed, number, **options)
    return interpret(processes.launch(job, timeout_s), job)


def parent_of(record):
    assert record.outcome is Outcome.OK, record.reason
    return record.samples_s[0]


def test_the_cases_of_a_round_are_children_of_one_process_and_each_round_has_its_own(processes):
    records = [measure(processes, seed, number) for number in (0, 1) for seed in (1, 2, 3)]
    parents = [parent_of(record) for record in records]
    assert parents[0] == parents[1] == parents[2] != parents[3] == parents[4] == parents[5]
    assert len({record.samples_s[1] for record in records}) == 6
    assert int(parents[3]) in {child.pid for child in psutil.Process().children()}
    assert not psutil.pid_exists(int(parents[0]))


@pytest.mark.parametrize(
    ("act", "outcome", "reason"),
    [
        ("ctypes.string_at(0)", Outcome.CRASHED, "killed by SIGSEGV"),
        ("raise ValueError('boom')", Outcome.CRASHED, "ValueError: boom"),
        ("os._exit(0)", Outcome.CRASHED, "ended without a record"),
        ("os.kill(os.getpid(), signal.SIGKILL)", Outcome.CRASHED, "killed by SIGKILL"),
        ("time.sleep(1000)", Outcome.TIME_OUT, "not done after 2 s"),
        ("sys.stdout.write('x' * (1 << 20)); sys.exit(3)", Outcome.CRASHED, "ended with exit status 1"),
    ],
)
def test_a_child_that_fails_costs_its_own_case(acts, processes, act, outcome, reason):
    acts(seed2=act)
    first, failed, after = (measure(processes, seed, timeout_s=2.0) for seed in (1, 2, 3))
    assert failed.outcome is outcome
    assert reason in failed.reason
    assert parent_of(first) == parent_of(after)


def test_each_child_has_a_session_and_an_output_of_its_own(processes, acts):
    acts(seed1="raise ValueError", seed2="raise ValueError")
    for seed in (1, 2):
        assert f"rank 0 of seed {seed}, session True" in measure(processes, seed).reason
        assert f"seed {3 - seed}" not in measure(processes, seed).reason


def test_what_a_child_leaves_behind_is_gone_before_the_next_case(acts, processes, mark):
    acts(seed1="subprocess.Popen(['sleep', '1000'], start_new_session=True)")
    measure(processes, 1)
    assert not [command for command in marked_processes(mark).values() if command.startswith("sleep")]


def test_after_the_end_of_its_process_a_round_goes_on_in_a_new_one(acts, processes):
    acts(seed2="os.kill(os.getppid(), signal.SIGKILL); time.sleep(1000)")
    first, failed, after = (measure(processes, seed) for seed in (1, 2, 3))
    assert (failed.outcome, failed.reason.splitlines()[0][:17]) == (Outcome.CRASHED, "killed by SIGKILL")
    assert parent_of(first) != parent_of(after)


def test_a_process_that_cannot_start_fails_each_case_with_its_last_lines(acts):
    broken = RoundProcesses([sys.executable, "-c", "raise ImportError('no torch')"])
    for seed in (1, 2):
        record = measure(broken, seed)
        assert (record.outcome, record.reason.splitlines()[0]) == (Outcome.CRASHED, "ended with exit status 1")
        assert "ImportError: no torch" in record.reason


def test_a_process_that_does_not_answer_is_ended_at_the_deadline(acts, monkeypatch):
    monkeypatch.setattr("dpbench.jobs.round._START_S", 0.0)
    monkeypatch.setattr("dpbench.jobs.round.GRACE_S", 0.5)
    hung = RoundProcesses([sys.executable, "-c", "import time; time.sleep(1000)"])
    record = measure(hung, 1, timeout_s=1.0)
    assert (record.outcome, record.reason) == (Outcome.TIME_OUT, "not done after 1 s")


def test_ranks_are_siblings_that_meet_at_one_listener(acts, processes):
    told = "sys.exit(f'{rank} {place.size} {place.listener is None} {place.port > 0}')"
    acts(seed1=f"if rank == 0: time.sleep(9)\n{told}")
    failed = measure(processes, 1, variant="ddp")
    assert failed.outcome is Outcome.CRASHED
    assert "1 2 True True" in failed.reason
    assert failed.reason.endswith("rank 1 ended with status 1")
    acts(seed1="print(os.getppid())\nif rank == 0: time.sleep(0.5); sys.exit()")
    processes.end_round()
    parents = [line for line in measure(processes, 1, variant="ddp").reason.splitlines() if line.isdecimal()]
    assert len(parents) == 2
    assert len(set(parents)) == 1


def test_a_rank_killed_for_memory_is_out_of_memory(acts, processes, monkeypatch):
    acts(seed1="os.kill(os.getpid(), signal.SIGKILL) if rank == 1 else time.sleep(1000)")
    end = processes.launch(job_of(1, variant="ddp"), 60.0)
    assert end.returncode == -signal.SIGKILL
    assert end.tail.endswith(b"rank 1 ended with status -9\n")


def test_a_stop_ends_the_child_and_a_late_one_is_ignored(acts, processes):
    acts(seed1="time.sleep(1000)")
    reader, writer = os.pipe()
    os.write(writer, b"x")
    end = processes.launch(job_of(1), 60.0, stop_fd=reader)
    assert end.is_stopped
    assert processes._round is not None
    processes._round._connection.send_bytes(b"stop")
    assert parent_of(measure(processes, 2))
    os.close(reader)
    os.close(writer)


def test_an_interrupted_launch_leaves_no_process(acts, processes, mark, monkeypatch):
    acts(seed1="time.sleep(1000)")

    def interrupted(*_):
        wait_until(lambda: len(marked_processes(mark)) == 2)
        raise KeyboardInterrupt

    monkeypatch.setattr("dpbench.jobs.round._Round._answer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        processes.launch(job_of(1), 60.0)
    assert not marked_processes(mark)


def test_any_bytes_of_a_child_reach_the_parent():
    end = Exit("2026-01-01", 1.5, -9, 2.0, bytes(range(256)), b"\xff\x00\xfe", 3, is_stopped=True)
    ours, theirs = Pipe()
    with ours, theirs:
        send_exit(theirs, end)
        assert receive_exit(ours) == end


def test_heaps_of_the_children_are_shifted_differently(acts, processes):
    acts(seed1="raise ValueError(hex(id(bytearray(100_000))))")
    assert len({measure(processes, 1).reason.splitlines()[-1] for _ in range(4)}) > 1
