"""Attacks by the code of a commit that a gate measures, each in a real side of a round."""

import os
import shutil
import sys
import uuid
from pathlib import Path

import pytest
import torch

from dpbench.errors import GateError
from dpbench.gate.contents import contents, guarded
from dpbench.gate.take_round import LOCKSTEP
from dpbench.processes.fence import SCRATCH, landlock_version
from dpbench.processes.launch import launch
from dpbench.processes.messages import LockstepJobs, LockstepRounds, SideName
from dpbench.records.record import Outcome
from tests.cli.repositories import INIT, commit, git, make_repository
from tests.cli.test_gate import gate, repository  # noqa: F401  # fixtures
from tests.processes.conftest import marked_processes
from tests.processes.test_lockstep import copied, failure, job

SIGNALS_SCOPED = 6
pytestmark = pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock")

PREAMBLE = """
import ctypes, json, os, signal, stat, subprocess, sys, threading, time
import torch
from dpbench.measure import undisturbed
BASE, WORLD, COORDINATOR = {base!r}, {world!r}, os.getppid()
MODULE = BASE + "/dpbench/parallel/module.py"
PIPE = next((fd for fd in range(3, 99) if os.path.exists(f"/proc/self/fd/{{fd}}") and stat.S_ISSOCK(os.fstat(fd).st_mode)))
SIBLINGS = [int(pid) for pid in open(f"/proc/{{COORDINATOR}}/task/{{COORDINATOR}}/children").read().split()]
SIBLINGS.remove(os.getpid())
PARENT = int(open(f"/proc/{{COORDINATOR}}/stat").read().rpartition(")")[2].split()[1])
dumps, clock, forward = json.dumps, time.perf_counter, DataParallel.forward
calls = 0

def sends(text):
    json.dumps = lambda _: text

def halves(message):
    return dumps({{**message, "steps_s": [s / 2 for s in message["steps_s"]]}})

def counted(self, *inputs, **kwargs):
    global calls, output
    calls += 1
    return forward(self, *inputs, **kwargs)

def remembers(self, *inputs, **kwargs):
    global output
    if calls < 60:
        output = counted(self, *inputs, **kwargs)
    return output
"""
DENIED, CRASHED, WRONG, OK = (Outcome.CRASHED, "PermissionError"), Outcome.CRASHED, Outcome.WRONG_RESULT, (Outcome.OK, "")
NO_TIMES, DISBELIEVED = (WRONG, "it did not report"), (WRONG, "its step times are not believed")
FILES = {
    "append to base": "open(MODULE, 'a')",
    "append to head": "open(__file__, 'a')",
    "truncate base": "os.truncate(MODULE, 0)",
    "unlink base": "os.unlink(MODULE)",
    "rename base": "os.rename(MODULE, os.environ['TMPDIR'] + '/x')",
    "symlink in base": "os.symlink('/etc', BASE + '/x')",
    "mkdir in base": "os.mkdir(BASE + '/x')",
    "byte code in base": "open(BASE + '/dpbench/parallel/module.pyc', 'wb')",
    "site-packages": "open(torch.__file__, 'a')",
    "repository": "open(WORLD + '/repository/.git/config', 'a')",
    "results": "open(WORLD + '/results/x', 'w')",
    "history": "open(WORLD + '/results/gate/history.jsonl', 'r+')",
    "home": "open(os.path.expanduser('~/.profile'), 'a')",
    "the temporary folder of all": "open('/tmp/dpbench-attack', 'w')",
    "memory of the coordinator": "open(f'/proc/{COORDINATOR}/mem', 'rb')",
    "memory of a sibling": "open(f'/proc/{SIBLINGS[0]}/mem', 'r+b')",
    "descriptors of the coordinator": "os.listdir(f'/proc/{COORDINATOR}/fd')",
    "trace a sibling": "if ctypes.CDLL(None).ptrace(16, SIBLINGS[0], 0, 0): raise PermissionError",
}
KILLS = {f"kill {who}": f"os.kill({who}, 9)" for who in ("SIBLINGS[0]", "COORDINATOR", "PARENT")}
OTHERS = {
    "hard link": ("os.link(MODULE, os.environ['TMPDIR'] + '/x')", CRASHED, "Error: [Errno"),
    "another program": (
        "os.execv('/bin/sh', ['sh', '-c', f'echo >> {MODULE}; rm -rf {WORLD}/*; exit 9'])", CRASHED, "exit status 9"
    ),
    "a thread": ("t = threading.Thread(target=lambda: open(MODULE, 'a')); t.start(); t.join()", *OK),
    "JSON on stdout": ("""os.write(1, b'{"rounds": []}\\n')""", *OK),
    "JSON on every descriptor": (
        """for fd in range(3, 999):
    try: os.write(fd, b'{"rounds": []}')
    except OSError: pass""",
        *NO_TIMES,
    ),
    "huge stdout": ("for _ in range(100): os.write(1, b'x' * (1 << 20))", *OK),
    "huge message": ("sends('9' * (10 << 20))", CRASHED, "exit status 1"),
    "deep message": ("sends('[' * 100_000)", *NO_TIMES),
    "no JSON": ("sends('fast')", *NO_TIMES),
    "NaN": ("sends('{\"steps_s\": [NaN]}')", *NO_TIMES),
    "negative": ("sends('{\"steps_s\": [-1.0]}')", *NO_TIMES),
    "zero": ("sends('{\"steps_s\": [0]}')", *NO_TIMES),
    "too many": ("sends('{\"steps_s\": [0.1, 0.1]}')", *NO_TIMES),
    "success without times": ("sends('{\"outcome\": \"ok\"}')", *NO_TIMES),
    "an unknown outcome": ("sends('{\"outcome\": \"fast\", \"reason\": \"\"}')", *NO_TIMES),
    "answers early": (
        """def twice(message):
    os.write(PIPE, dumps(message).encode())
    return dumps(message)
json.dumps = twice""",
        WRONG,
        "it answered before it was asked",
    ),
    "slow clock": ("time.perf_counter = lambda: clock() / 2", *DISBELIEVED),
    "slow clock from the 40th step": (
        "DataParallel.forward = counted; time.perf_counter = lambda: clock() / (2 if calls > 40 else 1)", *DISBELIEVED
    ),
    "waits that were none": ("undisturbed.counted_s = lambda wall_s, *_: wall_s / 2", *DISBELIEVED),
    "halved report": ("json.dumps = halves", *DISBELIEVED),
    "less work from the 60th step": ("DataParallel.forward = remembers", *OK),  # the README's limit
    "never ends": ("while True: time.sleep(1)", Outcome.TIME_OUT, "no answer in time"),
    "forks away": (
        """if not os.fork():
    os.setsid()
    if not os.fork(): time.sleep(600)
    os._exit(0)""",
        *OK,
    ),
    "ends while a fork holds its pipe": ("if os.fork(): os._exit(3)\ntime.sleep(600)", CRASHED, "exit status 3"),
    "closes its pipe": ("os.close(PIPE); time.sleep(600)", CRASHED, "closed its pipe"),
    "ends": ("os._exit(7)", CRASHED, "ended with exit status 7"),
    "BaseException": ("raise BaseException", CRASHED, "ended with exit status 1"),
    "a terminal's commands": ("raise ValueError('\\x1b[2J\\x07 x')", CRASHED, "ValueError:  [2J  x"),
}  # fmt: skip
ATTACKS = {
    **{name: (code, *DENIED) for name, code in FILES.items()},
    **({name: (code, *DENIED) for name, code in KILLS.items()} if landlock_version() >= SIGNALS_SCOPED else {}),
    **OTHERS,
}


def attacking(folder, base, world, code):
    with (copied(folder) / INIT).open("a") as file:
        file.write(PREAMBLE.format(base=str(base), world=str(world)) + code + "\n")
    return folder


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    """All attacks in one launch: the rounds by name, what they changed, and the processes that are left."""
    top = tmp_path_factory.mktemp("attacked")
    base, world, scratch, mark = copied(top / "base"), top / "world", top / "scratch", uuid.uuid4().hex
    for name in ("repository/.git/config", "results/gate/history.jsonl", "home/.profile"):
        (world / name).parent.mkdir(parents=True)
        (world / name).write_text("as it was\n")
    scratch.mkdir()
    jobs = [
        job(
            base,
            attacking(top / str(number), base, world, code),
            benchmark=name,
            variables={"HOME": str(world / "home")},
            blocks=8,
            block_s=0.01,
            checked=False,
            timeout_s=15.0 if name == "never ends" else 60.0,
            **({"case": job(base, base).case.model_copy(update={"mode": "infer"})} if "less work" in name else {}),
        )
        for number, (name, (code, *_)) in enumerate(ATTACKS.items())
    ]
    before = contents(top)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPBENCH_TEST_MARK", mark)
        end = launch(["env", f"{SCRATCH}={scratch}", *LOCKSTEP], LockstepJobs(jobs=jobs).model_dump_json(), 600.0)
    left = marked_processes(mark)
    assert end.returncode == 0, end.tail.decode()
    assert len(end.tail) <= 64 << 10
    shutil.rmtree(scratch)
    scratch.mkdir()
    rounds = {each.benchmark: each for each in LockstepRounds.model_validate_json(end.record).rounds}
    return rounds, (before, contents(top)), left


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_has_its_outcome_and_its_reason(attacked, name):
    outcome, side, reason = failure(attacked[0][name])
    assert (outcome, side) == (ATTACKS[name][1], None if ATTACKS[name][1] is Outcome.OK else SideName.HEAD), reason
    assert ATTACKS[name][2] in (reason or "")


def test_attacks_change_nothing_and_leave_no_process(attacked):
    _, (before, after), left = attacked
    assert after == before
    assert not left
    assert not Path("/tmp/dpbench-attack").exists()
    assert not torch.__file__.endswith("x")
