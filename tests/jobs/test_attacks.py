"""Attacks by the code of a commit that a gate measures, each in a real side of a round."""

import compileall
import errno
import json
import re
import shutil
import uuid
from statistics import median

import pytest

from dpbench.cases.names import Mode
from dpbench.engine.fence import SCRATCH, landlock_version
from dpbench.engine.launch import launch
from dpbench.engine.messages import CountJob, LockstepJobs, LockstepRounds, SideName
from dpbench.errors import GateError
from dpbench.gate.rounds import LOCKSTEP
from dpbench.gate.sides import contents, guarded
from dpbench.jobs.count import run_jobs
from dpbench.records.count_record import Phase
from dpbench.records.record import Outcome
from tests.cli.repositories import INIT, commit, git
from tests.cli.test_gate import gate, repository, whole  # noqa: F401  # fixtures
from tests.engine.conftest import marked_processes
from tests.jobs.test_lockstep import ROOT, copied, failure, job

SIGNALS_SCOPED = 6
pytestmark = pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock")

PREAMBLE = """
import ctypes, json, os, threading, time
import torch
from dpbench.measure import undisturbed
BASE, WORLD, COORDINATOR = {base!r}, {world!r}, os.getppid()
MODULE = BASE + "/dpbench/parallel/module.py"
PIPE = next((fd for fd in range(3, 99) if "socket:" in os.path.realpath(f"/proc/self/fd/{{fd}}")), None)
SIBLINGS = [int(pid) for pid in open(f"/proc/{{COORDINATOR}}/task/{{COORDINATOR}}/children").read().split()]
SIBLINGS.remove(os.getpid())
PARENT = int(open(f"/proc/{{COORDINATOR}}/stat").read().rpartition(")")[2].split()[1])
dumps, clock, forward = json.dumps, time.perf_counter, DataParallel.forward
calls = 0

def sends(text):
    json.dumps = lambda _: text

def halves(message):
    global calls
    calls += 1
    return dumps({{"steps_s": [s / (2 if calls > 4 else 1) for s in message["steps_s"]]}})

def remembers(self, *inputs, **kwargs):
    global calls, output
    calls += 1
    if calls < 60:
        output = forward(self, *inputs, **kwargs)
    return output
"""
CRASHED, WRONG, OK = Outcome.CRASHED, Outcome.WRONG_RESULT, (Outcome.OK, "")
NO_TIMES, COUNTED = (WRONG, "it did not report"), (Outcome.OK, "counts as the steps' time")
DENIED = {
    "append to base": "open(MODULE, 'a')",
    "append to head": "open(__file__, 'a')",
    "truncate base": "os.truncate(MODULE, 0)",
    "unlink base": "os.unlink(MODULE)",
    "rename base": "os.rename(MODULE, os.environ['TMPDIR'] + '/x')",
    "symlink in base": "os.symlink('/etc', BASE + '/x')",
    "hard link": "os.link(MODULE, os.environ['TMPDIR'] + '/x')",
    "mkdir in base": "os.mkdir(BASE + '/x')",
    "byte code in base": "open(BASE + '/dpbench/parallel/module.pyc', 'wb')",
    "site-packages": "open(torch.__file__, 'a')",
    "repository": "open(WORLD + '/repository/.git/config', 'a')",
    "results": "open(WORLD + '/results/x', 'w')",
    "history": "open(WORLD + '/results/gate/history.jsonl', 'r+')",
    "home": "open(os.path.expanduser('~/.profile'), 'a')",
    "the temporary folder of all": "open(WORLD + '/../x', 'w')",
    "memory of the coordinator": "open(f'/proc/{COORDINATOR}/mem', 'rb')",
    "memory of a sibling": "open(f'/proc/{SIBLINGS[0]}/mem', 'r+b')",
    "descriptors of the coordinator": "[open(f'/proc/{COORDINATOR}/fd/{fd}', 'wb') for fd in range(999)]",
    "trace a sibling": "if ctypes.CDLL(None).ptrace(16, SIBLINGS[0], 0, 0): raise PermissionError(1, '')",
}
KILLS = {f"kill {who}": f"os.kill({who}, 9)" for who in ("SIBLINGS[0]", "COORDINATOR", "PARENT")}
DENIED |= KILLS if landlock_version() >= SIGNALS_SCOPED else {}
ATTACKS = {
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
        # Each block is reported twice. The report of readiness is not: its copy could be taken for the first block.
        """reports = []
def twice(message):
    reports.append(message)
    if len(reports) > 1: os.write(PIPE, dumps(message).encode())
    return dumps(message)
json.dumps = twice""",
        WRONG,
        "it answered before it was asked",
    ),
    "slow clock": ("time.perf_counter = lambda: clock() / 9", *COUNTED),
    "waits that were none": ("undisturbed.counted_s = lambda wall_s, *_: wall_s / 9", *COUNTED),
    "halved report from the 4th block": ("json.dumps = halves", *OK),  # test_hidden_work.py has what it gains
    "less work from the 60th step": ("DataParallel.forward = remembers", *OK),  # an unchecked round
    "reads": ("open('/proc/self/status').read(), open(WORLD + '/home/.profile').read()", *OK),
    "network": (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname()).close()",
        *OK,
    ),
    "never ends": ("while True: time.sleep(1)", Outcome.TIME_OUT, "no answer in"),
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
    "BaseException": ("raise BaseException", CRASHED, "BaseException"),
    "a terminal's commands": ("raise ValueError('\\x1b[2J\\x07 x')", CRASHED, "ValueError: [2J x"),
}  # fmt: skip
ALL_DENIED = """
def error_of(code):
    try: exec(code)
    except OSError as error: return error.errno
raise ValueError([error_of(code) for code in {codes}])"""


def attacking(folder, base, world, code):
    with (shutil.copytree(base, folder) / INIT).open("a") as file:
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
    compileall.compile_dir(base, quiet=2)
    usual = {"variables": {"HOME": str(world / "home")}, "blocks": 8, "block_s": 0.01, "checked": False}
    jobs = []
    denied = (ALL_DENIED.format(codes=list(DENIED.values())), *OK)
    for name, (code, outcome, _) in {"denied": denied, **ATTACKS}.items():
        head = attacking(top / str(len(jobs)), base, world, code)
        asked = job(base, head, benchmark=name, timeout_s=3.0 if name == "never ends" else 60.0, **usual)
        if outcome is not Outcome.OK:
            asked = asked.model_copy(update={"sides": dict(reversed(asked.sides.items()))})  # base need not be ready
        if "remembers" in code:
            asked = asked.model_copy(update={"case": asked.case.model_copy(update={"mode": Mode.INFER})})
        jobs.append(asked)
    before = contents(top)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPBENCH_TEST_MARK", mark)
        end = launch(
            ["env", f"{SCRATCH}={scratch}", *LOCKSTEP.command], LockstepJobs(jobs=jobs).model_dump_json(), 600.0
        )
    left = marked_processes(mark)
    assert end.returncode == 0, end.tail.decode()
    assert len(end.tail) <= 64 << 10
    shutil.rmtree(scratch)
    scratch.mkdir()
    rounds = {measured.benchmark: measured for measured in LockstepRounds.model_validate_json(end.record).rounds}
    return rounds, (before, contents(top)), left


@pytest.mark.parametrize("name", DENIED)
def test_a_side_cannot_reach_out_of_its_fence(attacked, name):
    outcome, side, reason = failure(attacked[0]["denied"])
    assert (outcome, side) == (CRASHED, SideName.HEAD)
    errors = json.loads(reason.removeprefix("ValueError: ").replace("None", "null"))
    assert errors[list(DENIED).index(name)] in (errno.EPERM, errno.EACCES, errno.EXDEV)


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_has_its_outcome_and_its_reason(attacked, name):
    outcome, side, reason = failure(attacked[0][name])
    assert (outcome, side) == (ATTACKS[name][1], None if ATTACKS[name][1] is Outcome.OK else SideName.HEAD), reason
    assert ATTACKS[name][2] in (reason or "")


@pytest.mark.parametrize("name", [name for name, (_, *outcome) in ATTACKS.items() if tuple(outcome) == COUNTED])
def test_a_lie_about_times_gains_little(attacked, name):
    """Both report a ninth of their times. On a busy machine base's blocks take longer beside their steps, too."""
    base_s, head_s = (median(map(sum, attacked[0][name].times_s[side])) for side in (SideName.BASE, SideName.HEAD))
    assert 0.3 < head_s / base_s < 3


def test_attacks_change_nothing_and_leave_no_process(attacked):
    _, (before, after), left = attacked
    assert after == before
    assert not left


def test_a_change_that_the_fence_allows_breaks_the_gate(tmp_path):
    base = copied(tmp_path / "base")
    head = attacking(tmp_path / "head", base, tmp_path, "os.chmod(MODULE, 0o777)")
    jobs = LockstepJobs(jobs=(job(base, head, blocks=1, checked=False),))
    with pytest.raises(GateError, match=r"base: the measured code changed 'dpbench/parallel/module\.py'"):
        guarded(launch, tmp_path, {"base": base, "head": head})(LOCKSTEP.command, jobs.model_dump_json(), 120.0)


def test_counting_is_fenced_too(tmp_path):
    base, case = copied(tmp_path / "base"), job(tmp_path, tmp_path).case
    head = attacking(tmp_path / "head", base, tmp_path, DENIED["append to base"])
    before, fenced = contents(base), guarded(launch, tmp_path, {"base": base, "head": head})
    (record,) = run_jobs([CountJob(case=case, folder=str(head))], launch=fenced)
    assert record.outcome is CRASHED
    assert "PermissionError" in record.reason
    assert contents(base) == before


def test_counts_are_heads_word(tmp_path):
    """A limit that STRANGERS.md names."""
    base, case = copied(tmp_path / "base"), job(tmp_path, tmp_path).case
    code = "from dpbench.measure import python_calls; python_calls._ByPhase._count = lambda *_: None"
    head = attacking(tmp_path / "head", base, tmp_path, code)
    honest, lying = run_jobs([CountJob(case=case, folder=str(side)) for side in (base, head)])
    calls, fewer = (record.counts.phases[Phase.FORWARD].python_calls for record in (honest, lying))
    assert calls > fewer == 0


def test_each_sentence_about_strangers_has_its_test():
    page = (ROOT / "dpbench/gate/STRANGERS.md").read_text()
    named = re.findall(r"`(test_\w+)`", page)
    bullets = [line for line in page.splitlines() if line.startswith("- ")]
    files = [path for room in ("jobs", "engine", "gate") for path in (ROOT / "tests" / room).glob("test_*.py")]
    defined = "".join(path.read_text() for path in files)
    assert all("`test_" in bullet for bullet in bullets)
    assert [name for name in named if f"def {name}(" not in defined] == []


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("code", "why"),
    [
        (DENIED["append to base"], "crashed: PermissionError"),
        (KILLS["kill PARENT"], "crashed: PermissionError"),
    ],
)
def test_a_whole_gate_names_the_attack_and_writes_no_history(gate, repository, tmp_path, code, why):  # noqa: F811
    with (repository / INIT).open("a") as file:
        file.write(PREAMBLE.format(base=str(repository), world=str(tmp_path)) + code + "\n")
    commit(repository, "attacking")
    done = gate("base", "attacking", "--tiers", "1")
    assert done.returncode == 3, done.stdout + done.stderr
    assert f"head: tiny: {why}" in " ".join(done.stderr.split())
    assert not (tmp_path / "results").exists()
    assert git(repository, "status", "--porcelain") == ""
