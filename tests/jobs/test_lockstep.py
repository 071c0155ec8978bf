"""Real rounds of a gate, over copies of the wrapper with one fault each."""

import json
import os
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest

from dpbench.cases.case import Case
from dpbench.engine.launch import launch
from dpbench.engine.messages import LockstepJob, LockstepJobs, LockstepRounds, Side, SideName
from dpbench.gate.rounds import LOCKSTEP
from dpbench.jobs import forks
from dpbench.jobs.forks import SideError, Taken, forked
from dpbench.jobs.lockstep_child import _alternate, _blocks
from dpbench.records.record import Outcome

ROOT = Path(__file__).parents[2]
CHOSEN = "        if autotuner.chosen is Dispatch.SEQUENCE:\n"
FORWARD = "    def forward(self, *inputs: Any, **kwargs: Any) -> Any:\n"
GATHERED = "return self.gather(outputs, self.output_device)"
BLOCKS, CORE = 3, max(os.sched_getaffinity(0))
AUTO = Case(variant="tuned", workload="mlp/tiny", batch=8, devices=("cpu", "cpu"), threads=1)

WRONG_GRADIENTS = (GATHERED, "return [2 * each for each in [self.gather(outputs, self.output_device)]][0]")
STALE = (
    FORWARD,
    f"{FORWARD}        weights = list(self.module.parameters())\n"
    "        self.__dict__.setdefault('old', [weight.detach().clone() for weight in weights])\n"
    "        [weight.data.copy_(old) for weight, old in zip(weights, self.old)]\n",
)
LATER_WRONG = (
    GATHERED,
    "self.gathered = getattr(self, 'gathered', 0) + 1; "
    "return self.gather(outputs, self.output_device) * (1 + (self.gathered > 25))",
)
KILLED = (FORWARD, f"{FORWARD}        import os, signal\n        os.kill(os.getpid(), signal.SIGSEGV)\n")
HANGING = (FORWARD, f"{FORWARD}        while True:\n            pass\n")
RAISING = (FORWARD, f"{FORWARD}        raise ValueError('not today')\n")
LATE = (
    FORWARD,
    f"{FORWARD}        if os.environ.get('DPBENCH_TEST_LATE') and os.sched_getaffinity(0) == {{{CORE}}}:\n"
    "            self.pinned = getattr(self, 'pinned', 0) + 1\n"
    f"            if self.pinned == {BLOCKS}:\n"
    "                raise ValueError('late')\n",
)
ONE_AT_A_TIME = """
import fcntl as _fcntl, os as _os, torch as _torch
_lock = open({lock!r}, "w")
try:
    _fcntl.flock(_lock, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
except BlockingIOError:
    _alone = False
else:
    _alone = True
    with open({log!r}, "a") as _log:
        _log.write(f"{{_os.getpid()}}\\n")

def _room():
    if not _alone:
        raise _torch.OutOfMemoryError("no room for a second one")

_forward = DataParallel.forward
DataParallel.forward = lambda self, *inputs, **kwargs: (_room(), _forward(self, *inputs, **kwargs))[1]
"""
FACTORY = """
from dpbench.cases.names import Data
from dpbench.workloads.workload import Workload
from dpbench.workloads.resolve import resolve
{above}
def make():
    usual = resolve("mlp/tiny", Data.RANDOM)
    def model():
        {first}
        return usual.model()
    return Workload(model=model, batch=usual.batch, loss=usual.loss)
"""


def copied(folder, *edit):
    """Copy the wrapper into `folder`. `edit` is a text of its module and what replaces it."""
    wrapper = folder / "dpbench/parallel"
    shutil.copytree(ROOT / "dpbench/parallel", wrapper, ignore=shutil.ignore_patterns("__pycache__"))
    if edit:
        text = (wrapper / "module.py").read_text()
        assert edit[0] in text
        (wrapper / "module.py").write_text(text.replace(*edit, 1))
    return folder


@pytest.fixture
def base(tmp_path):
    return copied(tmp_path / "base")


def job(base, head, workload="mlp/tiny", timeout_s=60.0, variables=None, **fields):
    side = Side(folder=str(base))
    usual = {
        "benchmark": "tiny",
        "case": Case(variant="tuned[dispatch=sequence]", workload=workload, batch=8, devices=("cpu", "cpu"), threads=1),
        "sides": {
            SideName.BASE: side,
            SideName.TWIN: side,
            SideName.HEAD: Side(folder=str(head), environment=variables or {}),
        },
        "cores": (CORE,),
        "blocks": BLOCKS,
        "block_s": 0.02,
        "timeout_s": timeout_s,
        "seed": 0,
    }
    return LockstepJob.model_validate({**usual, **fields})


def taken(*jobs):
    end = LOCKSTEP.run(LockstepJobs(jobs=jobs), 120.0).exit
    assert end.returncode == 0, end.tail.decode()
    return LockstepRounds.model_validate_json(end.record).rounds


def failure(measured):
    return measured.outcome, measured.side, measured.reason


@pytest.mark.parametrize(("step_s", "blocks"), [(0.001, 80), (0.03, 80), (0.05, 60), (0.1, 30), (5.0, 10)])
def test_a_long_step_gets_fewer_blocks(base, step_s, blocks):
    """A side has three seconds, and at least ten blocks."""
    assert _blocks(job(base, base, blocks=80), step_s) == blocks
    assert _blocks(job(base, base, blocks=5), step_s) == 5


def test_each_side_has_all_blocks_and_the_round_has_all_benchmarks(base):
    steps = (
        job(base, base, benchmark="first", block_s=0.3),
        job(base, base, benchmark="second", blocks=1, block_s=1e-6),
    )
    first, second = taken(*steps)
    assert (first.benchmark, second.benchmark) == ("first", "second")
    for measured, blocks in ((first, BLOCKS), (second, 1)):
        assert (measured.outcome, measured.cores, measured.resident) == (Outcome.OK, str(CORE), True)
        assert set(measured.times_s) == set(SideName)
        assert {len(times) for times in measured.times_s.values()} == {blocks}
    lengths = {len(block) for times in first.times_s.values() for block in times}
    assert len(lengths) == 1
    assert lengths.pop() > 1  # steps of about a millisecond
    assert {len(block) for times in second.times_s.values() for block in times} == {1}


def test_a_failure_names_its_side_and_does_not_affect_the_next_benchmark(base, tmp_path):
    """All jobs are in one launch, because importing torch takes longer than all of them."""
    syntax = copied(tmp_path / "syntax")
    (syntax / "dpbench/parallel/__init__.py").write_text("def (:\n")
    wrong, killed, raising, hanging = (
        copied(tmp_path / name, *edit)
        for name, edit in (("wrong", WRONG_GRADIENTS), ("killed", KILLED), ("raising", RAISING), ("hanging", HANGING))
    )
    rounds = taken(
        job(base, syntax),
        job(base, wrong),
        job(base, killed),
        job(base, raising),
        job(base, hanging, timeout_s=8.0),
        job(killed, base),
        job(base, wrong, checked=False),
    )
    assert [failure(measured)[:2] for measured in rounds] == [
        (Outcome.CRASHED, SideName.HEAD),
        (Outcome.WRONG_RESULT, SideName.HEAD),
        (Outcome.CRASHED, SideName.HEAD),
        (Outcome.CRASHED, SideName.HEAD),
        (Outcome.TIME_OUT, SideName.HEAD),
        (Outcome.CRASHED, SideName.BASE),
        (Outcome.OK, None),
    ]
    assert rounds[0].reason.startswith("SyntaxError: ")
    assert "SIGSEGV" in rounds[2].reason
    assert rounds[3].reason == "ValueError: not today"
    assert rounds[4].reason.startswith("no answer in ")


def test_wrong_numbers_of_trained_weights_or_of_late_steps_are_reported(base, tmp_path):
    """The first steps are right. The wrapper of the check before the first block takes fewer than 25."""
    stale, late = copied(tmp_path / "stale", *STALE), copied(tmp_path / "late", *LATER_WRONG)
    many = {"blocks": 10, "block_s": 0.05}
    rounds = taken(job(base, stale), job(base, late, **many), job(base, base, **many), job(base, late, checked=False))
    outcomes = [Outcome.WRONG_RESULT, Outcome.WRONG_RESULT, Outcome.OK, Outcome.OK]
    assert [measured.outcome for measured in rounds] == outcomes
    for measured in rounds[:2]:
        assert measured.side is SideName.HEAD
        assert "away from the plain module" in measured.reason


def test_a_failure_in_a_block_is_reported(base, tmp_path):
    """Steps on the job's core fail. A side is pinned there once it is prepared. A block has at least one step."""
    late = copied(tmp_path / "late", *LATE)
    module = late / "dpbench/parallel/module.py"
    module.write_text(module.read_text().replace("\nfrom ", "\nimport os\nfrom ", 1))
    (measured,) = taken(job(base, late, variables={"DPBENCH_TEST_LATE": "1"}))
    assert failure(measured) == (Outcome.CRASHED, SideName.HEAD, "ValueError: late")
    (measured,) = taken(job(late, late))  # the variable is set for head only
    assert measured.outcome is Outcome.OK


@pytest.mark.parametrize("resident", [True, False])
def test_all_sides_choose_the_dispatch_that_base_chose(tmp_path, resident):
    """Base and its twin find threads faster, and head raises if it does not choose them too."""
    base, head = copied(tmp_path / "base"), copied(tmp_path / "head")
    for folder, old, new in (
        (base, "time_s: float) -> None:\n", "        time_s *= 1 + 99 * (choice is not Dispatch.THREADS)\n"),
        (head, CHOSEN, "            raise ValueError('in sequence')\n"),
    ):
        dispatch = folder / "dpbench/parallel/dispatch.py"
        text = dispatch.read_text()
        assert old in text
        dispatch.write_text(text.replace(old, f"{old}{new}", 1))
    if not resident:
        for folder in (base, head):
            with (folder / "dpbench/parallel/__init__.py").open("a") as file:
                file.write(ONE_AT_A_TIME.format(lock=str(tmp_path / "lock"), log=str(tmp_path / "log")))
    (measured,) = taken(job(base, head, case=AUTO, checked=False))  # the check settles a wrapper of its own
    assert failure(measured) == (Outcome.OK, None, None)
    assert measured.resident is resident


def test_models_that_do_not_fit_together_run_one_at_a_time(tmp_path):
    lone, log = copied(tmp_path / "lone"), tmp_path / "log"
    text = ONE_AT_A_TIME.format(lock=str(tmp_path / "lock"), log=str(log))
    with (lone / "dpbench/parallel/__init__.py").open("a") as file:
        file.write(text)
    (measured,) = taken(job(lone, lone))
    assert (measured.outcome, measured.resident) == (Outcome.OK, False), measured.reason
    assert {len(times) for times in measured.times_s.values()} == {BLOCKS}
    pids = log.read_text().split()
    assert len(pids) == len(set(pids)) == 1 + 1 + 3 * BLOCKS  # together, to time a step, one for each block


def test_each_side_runs_the_users_own_step_from_its_folder(tmp_path):
    base, head = tmp_path / "base", tmp_path / "head"
    for folder, first in ((base, "import network"), (head, "raise ValueError('of head')")):
        folder.mkdir()
        (folder / "mine.py").write_text(FACTORY.format(above="", first=first))
        (folder / "network.py").touch()
    good, bad, missing = taken(
        job(base, base, "mine:make"), job(base, head, "mine:make"), job(base, base, "yours:make")
    )
    assert good.outcome is Outcome.OK
    assert failure(bad)[:2] == (Outcome.CRASHED, SideName.HEAD)
    assert "of head" in bad.reason
    assert failure(missing)[:2] == (Outcome.SKIPPED, SideName.BASE)
    assert "yours:make" in missing.reason


def test_each_side_runs_once_in_each_block_in_random_order(base):
    def orders(seed):
        taken = []

        def take_block(name, steps):
            taken.append((name, steps))
            return Taken((1.0,) * steps, steps, steps, steps, {})

        times, *_ = _alternate(job(base, base, blocks=40, seed=seed), lambda _: nullcontext((0.006, take_block)))
        assert {name: len(blocks) for name, blocks in times.items()} == dict.fromkeys(SideName, 40)
        assert {steps for _, steps in taken} == {4}  # of 6 ms each, for 20 ms
        blocks = [tuple(name for name, _ in taken[start : start + 3]) for start in range(0, 120, 3)]
        assert all(set(block) == set(SideName) for block in blocks)
        return blocks

    assert len(set(orders(0))) == 6
    assert orders(0) == orders(0) != orders(1)


def test_an_invalid_request_ends_the_child_with_the_reason():
    end = launch(LOCKSTEP.command, json.dumps({"jobs": []}), 60.0)
    assert end.returncode != 0
    assert b"jobs" in end.tail
    assert end.record == b""


@pytest.mark.parametrize("error", [ZeroDivisionError("no"), SystemExit(1)])
def test_a_side_that_ends_before_it_serves_says_why(error, monkeypatch):
    monkeypatch.setattr(forks, "adopt_orphans", lambda: None)  # the tests' process does not reap orphans

    def serve(pipe):
        raise error

    with forked(SideName.HEAD, serve, 30.0) as fork, pytest.raises(SideError) as caught:
        fork.receive()
    assert caught.value.reason.startswith(type(error).__name__)


def test_threads_that_end_or_begin_while_they_are_pinned(monkeypatch):
    """Thread 2 has ended when it is pinned, and thread 3 was started by one that was not pinned yet."""
    listed, done = iter([["1", "2"], ["1", "3"], ["1", "3"]]), []

    def pin_thread(thread, cores):
        if thread == 2:
            raise ProcessLookupError
        done.append((thread, cores))

    monkeypatch.setattr(forks.os, "listdir", lambda _: next(listed))
    monkeypatch.setattr(forks.os, "sched_setaffinity", pin_thread)
    forks.pin((0,))
    assert sorted(done) == [(1, (0,)), (3, (0,))]
