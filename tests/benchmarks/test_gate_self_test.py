"""The gate's self-test with made-up rounds: what it records, draws and writes, and that a gate can cite it."""

import json
import subprocess
import sys
from math import log
from pathlib import Path
from random import Random

import psutil
import pytest

from benchmarks.instruments import gate_self_test
from benchmarks.instruments.gate_self_test import (
    EQUAL,
    INJECTED,
    LOADED,
    LOOPS,
    SLOWDOWNS,
    Setup,
    Trial,
    draw_gates,
    record,
    result_of,
)
from dpbench.engine.messages import LockstepJobs, LockstepRounds, SideName
from dpbench.errors import GateError
from dpbench.gate import rounds as rounds_module
from dpbench.gate.history import measured_false_alarms, read_self_tests
from dpbench.gate.judgement import Verdict
from dpbench.gate.settings import Cores, Settings
from tests.fakes import ended
from tests.gate.making_rounds import benchmark, lockstep_round, noisy, ratio
from tests.records.making import ENVIRONMENT

ROOT = Path(__file__).parents[2]
SUITE = Settings(benchmarks=(benchmark("a"), benchmark("b"), benchmark("all", cores=Cores.ALL)))
PAIR = Settings(benchmarks=(benchmark("a"), benchmark("b")))
STEP_LOOPS = {"a": 100_000, "b": 400_000, "all": 50_000}
"""The iterations of the injected loop that take as long as a step."""
CALIBRATING = 2 + 6


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(rounds_module, "_CPU_SAMPLE_S", 0.001)
    monkeypatch.setattr(gate_self_test, "DRAWN", 20)


class Machine:
    """A launcher that answers like the lockstep child on a machine without noise.

    At each launch, `injected` gets the loops by benchmark, and `neighbours` the number of our child processes.
    """

    def __init__(self, environment=ENVIRONMENT, fails_at=None):
        self.injected, self.neighbours, self.environment, self.fails_at = [], [], environment, fails_at

    def __call__(self, command, stdin_text, timeout_s):
        if len(self.injected) == self.fails_at:
            return ended(1, tail=b"no more\n")
        jobs = LockstepJobs.model_validate_json(stdin_text).jobs
        loops = {job.benchmark: int(job.sides[SideName.HEAD].environment.get(LOOPS, "0")) for job in jobs}
        self.injected.append(loops)
        self.neighbours.append(len(psutil.Process().children()))
        rounds = tuple(
            lockstep_round([[1.0]], [[1.0]], [[1 + count / STEP_LOOPS[name]]]).model_copy(update={"benchmark": name})
            for name, count in loops.items()
        )
        return ended(0, LockstepRounds(rounds=rounds, environment=self.environment).model_dump_json().encode())


def recorded(path, rounds, gates, machine=None):
    machine = machine or Machine()
    return record(Setup(SUITE, ("cpu",), Path("/b"), Path("/s"), machine), path, rounds, gates), machine


def made_up(rounds=30, environment=ENVIRONMENT):
    """Rounds of the benchmarks a and b under all conditions, with a spread of 0.5 %."""
    rng = Random(0)
    return [
        Trial(
            condition=condition,
            number=number,
            started_at=f"2026-11-21T12:00:{number:02}+00:00",
            duration_s=5.0,
            rounds={name: noisy(rng, slowdown, 0.005)() for name in "ab"},
            environment=environment,
        )
        for number in range(rounds)
        for condition, slowdown in SLOWDOWNS.items()
    ]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "gate/self-test-here.jsonl"


CALL = """
import builtins, sys
sys.path.insert(0, "dpbench")
from parallel import DataParallel
loops, original = [], builtins.range
builtins.range = lambda count: loops.append(count) or ()
answer = DataParallel().forward(1, 2, key=3)
builtins.range = original
print(loops, answer)
"""


@pytest.mark.parametrize(("variables", "loops"), [({}, 0), ({LOOPS: "70000"}, 70_000)])
def test_each_forward_runs_the_loop_and_returns_the_same_as_before(tmp_path, variables, loops):
    (tmp_path / "dpbench/parallel").mkdir(parents=True)
    wrapper = "class DataParallel:\n    def forward(self, *inputs, **kwargs):\n        return inputs, kwargs\n"
    (tmp_path / "dpbench/parallel/__init__.py").write_text(wrapper + INJECTED)
    command = [sys.executable, "-S", "-c", CALL]
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=True)
    assert done.stdout == f"[{loops}] ((1, 2), {{'key': 3}})\n"


@pytest.mark.parametrize(("rounds", "gates"), [(6, 2), (2, 6), (5, 3), (3, 0)])
def test_conditions_alternate_and_gates_are_spread_among_the_rounds(path, rounds, gates):
    trials, _ = recorded(path, rounds, gates)
    assert [trial.condition for trial in trials] == list(SLOWDOWNS) * (rounds + gates)
    kinds = [trial.gate is None for trial in trials if trial.condition == EQUAL]
    assert (kinds.count(True), kinds.count(False)) == (rounds, gates)
    for count in range(1, len(kinds) + 1) if rounds >= gates else ():
        assert abs(kinds[:count].count(False) - kinds[:count].count(True) * gates / rounds) < 2


def test_a_round_is_slower_by_the_share_of_its_condition_in_every_benchmark_of_one_core(path):
    trials, machine = recorded(path, 1, 0)
    for trial, slowdown in zip(trials, SLOWDOWNS.values(), strict=True):
        slowed = {"a", "b"} if slowdown else {"a", "b", "all"}
        assert {name: measured.median.head for name, measured in trial.rounds.items()} == dict.fromkeys(
            slowed, pytest.approx(log(1 + slowdown), abs=1e-4)
        )
    tenth = {"a": 10_000, "b": 40_000}
    assert machine.injected[:CALIBRATING] == [{"a": 20_000, "b": 20_000}] * 2 + [tenth] * 6
    assert machine.injected[-1] == tenth


def test_a_gate_is_slower_in_one_benchmark_after_the_other_but_not_on_all_cores(path):
    trials, _ = recorded(path, 0, 3)
    for condition, slowdown in SLOWDOWNS.items():
        gates = [trial for trial in trials if trial.condition == condition]
        assert [trial.planted_in for trial in gates] == (["a", "b", "a"] if slowdown else [None] * 3)
        for trial in gates if slowdown > 0.03 else ():
            assert trial.verdict is Verdict.SLOWER
            assert [judged.benchmark for judged in trial.gate if judged.verdict is Verdict.SLOWER] == [trial.planted_in]


def test_the_loaded_condition_runs_one_more_process_and_ends_it(path):
    before = len(psutil.Process().children())
    _, machine = recorded(path, 1, 0)
    loaded = [condition == LOADED for condition in SLOWDOWNS]
    assert machine.neighbours[CALIBRATING:] == [before + extra for extra in loaded]
    assert len(psutil.Process().children()) == before


def test_a_self_test_that_is_started_again_records_only_missing_trials(path):
    first, _ = recorded(path, 2, 1)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])  # killed while it wrote
    again, machine = recorded(path, 2, 1)
    assert path.read_bytes().startswith(whole[: whole[:-1].rindex(b"\n") + 1])
    assert [(trial.condition, trial.number, trial.gate is None) for trial in again] == [
        (trial.condition, trial.number, trial.gate is None) for trial in first
    ]
    done, machine = recorded(path, 2, 1)
    assert (len(done), machine.injected) == (len(first), [])  # nothing is calibrated


def test_a_failed_round_ends_the_self_test_and_recorded_trials_stay(path):
    with pytest.raises(GateError, match="no more"):
        recorded(path, 2, 0, Machine(fails_at=CALIBRATING + 2))
    assert [json.loads(line)["schema"] for line in path.read_text().splitlines()] == [6, 6]


def test_a_file_of_another_machine_or_of_other_benchmarks_raises_and_stays(path):
    recorded(path, 1, 0)
    whole = path.read_bytes()
    with pytest.raises(ValueError, match=r"self-test-here\.jsonl: has trials of another machine"):
        recorded(path, 2, 0, Machine(ENVIRONMENT.model_copy(update={"cpu_model": "another"})))
    assert path.read_bytes() == whole
    with pytest.raises(ValueError, match="has other trials; allowed: those of a, b, so move it away"):
        record(Setup(PAIR, ("cpu",), Path("/b"), Path("/s"), Machine()), path, 2, 0)


@pytest.mark.parametrize("bad", [b"{}\n", b"not json\n", b"\xff\n", b'{"schema": 2}\n'])
def test_a_bad_line_raises(path, bad):
    path.parent.mkdir()
    path.write_bytes(bad)
    with pytest.raises(ValueError, match=r"self-test-here\.jsonl: line 1 "):
        recorded(path, 2, 0)


def drawn(slower, slowdown=0.05, round_s=10.0, spread=0.01):
    rng = Random(0)
    equal = {name: [noisy(rng, 0.0, spread)() for _ in range(60)] for name in "ab"}
    return draw_gates(PAIR, equal, equal | slower, slowdown, round_s)


def test_gates_are_drawn_with_the_slowdown_in_one_benchmark_after_the_other():
    """Only b is slow, so every other gate compares equal code."""
    slow = {"b": [ratio(log(1.5), 0.001 * (-1) ** i) for i in range(60)]}
    assert drawn(slow) == [Verdict.PASS, Verdict.SLOWER] * 10
    assert drawn({}) == [Verdict.PASS] * 20


def test_the_recorded_durations_spend_the_budget():
    """Two rounds of 130 s are too few to decide anything with such noise."""
    assert drawn({}, spread=0.2, round_s=130.0) == [Verdict.UNDECIDED] * 20


def test_the_result_has_the_fields_of_the_files_of_earlier_versions_and_a_gate_cites_it(tmp_path):
    summary = result_of(made_up(), PAIR)
    earlier = json.loads((ROOT / "results/gate/self-test-vm.json").read_text())
    assert summary.keys() == earlier.keys()
    assert summary["tested"][0].keys() - {"faster"} == earlier["tested"][0].keys()
    assert summary["tested"][0]["spreads"][0].keys() == earlier["tested"][0]["spreads"][0].keys()
    assert [test["drawn"]["slower"] for test in summary["tested"]] == [0, 0, 0, 20, 20]  # 2 % is below the threshold
    (tmp_path / "gate").mkdir()
    (tmp_path / "gate/self-test-here.json").write_text(json.dumps(summary))
    cited = measured_false_alarms(read_self_tests(tmp_path), (), ENVIRONMENT)
    assert (cited.alarms, cited.of, cited.gates) == (0, 20, "resampled from 30 rounds of the self-test of 2026-11-21")


def test_a_whole_gate_of_equal_code_with_a_faster_benchmark_is_counted(path):
    trials, _ = recorded(path, 2, 1)
    (equal, *_) = [trial for trial in trials if trial.gate and trial.condition == EQUAL]
    one = equal.gate[0].model_copy(update={"verdict": Verdict.FASTER})
    mistaken = equal.model_copy(update={"gate": (one, *equal.gate[1:])})
    for gate, count in ((equal, 0), (mistaken, 1)):
        summary = result_of([*(trial for trial in trials if trial is not equal), gate], SUITE)
        assert (summary["tested"][0]["condition"], summary["tested"][0]["faster"]) == (EQUAL, count)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--rounds", "1"], "argument --rounds: invalid choice: 1"),
        (["--base", "nowhere"], "gate_self_test: --base: 'nowhere' is no revision here; allowed: "),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(words, line):
    command = [sys.executable, "-m", "benchmarks.instruments.gate_self_test", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert line in done.stderr.splitlines()[-1]
