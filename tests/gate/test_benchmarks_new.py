"""A benchmark that base does not have is new, and the others are judged."""

import pytest

from dpbench.engine.messages import CountJobs, CountRecords
from dpbench.errors import GateError
from dpbench.gate import tier0_cases
from dpbench.gate.benchmarks import binds, comparable
from dpbench.gate.judgement import Verdict
from dpbench.gate.prepare import GateRequest
from dpbench.gate.run import run_gate
from dpbench.gate.settings import Benchmark
from dpbench.records.count_record import CountRecord
from dpbench.records.record import Outcome
from dpbench.report.gate.verdict_tables import reliability
from tests.cli.repositories import git
from tests.fakes import ended
from tests.gate.test_count_sides import CASE, record

OWN, SECOND = "def step(): ...\n", "def step(): ...\ndef second(): ...\n"
UNTIMED = "no time was measured, and no counter is worse"
TABLE = '[[benchmark]]\nname = "{0}"\nworkload = "mine.bench:{0}"\nbatch = 8\ndevices = "cpu*2"\nthreshold = "3%"\n'


def own(name, **fields):
    return Benchmark(name=name, workload=f"mine.bench:{name}", batch=8, devices="cpu*2", threshold=0.03, **fields)


@pytest.mark.parametrize(
    ("source", "is_bound"),
    [
        ("def step(): ...", True),
        ("async def step(): ...", True),
        ("class step: ...", True),
        ("step = make()", True),
        ("step: object = make()", True),
        ("a, (step, b) = made", True),
        ("from a.b import step", True),
        ("from a.b import c as step", True),
        ("import step.b", True),
        ("try:\n    import a\nexcept ImportError:\n    def step(): ...", True),
        ("if a:\n    b = 1\nelse:\n    with c() as step: pass", True),
        ("from a.b import *", True),
        ("def __getattr__(name): ...", True),
        ("def (:", True),
        (f"a = {'-' * 100_000}1", True),
        ("a\0", True),
        ("'\\d'", False),
        ("", False),
        ("def other():\n    step = 1", False),
        ("print(step)", False),
        ("class other:\n    def step(self): ...", False),
        ("from a.step import c", False),
        ("import a.step", False),
    ],
)
def test_a_name_that_a_module_binds_at_its_top_level(source, is_bound):
    assert binds(source.encode(), "step") is is_bound


@pytest.mark.parametrize("file", ["mine/bench.py", "mine/bench/__init__.py", "src/mine/bench.py"])
def test_a_factory_is_found_where_it_is_imported_from(tmp_path, file):
    for side, text in (("base", OWN), ("head", SECOND)):
        (tmp_path / side / file).parent.mkdir(parents=True)
        (tmp_path / side / file).write_text(text)
    compared = comparable([own("step"), own("second")], tmp_path / "base", tmp_path / "head")
    assert [benchmark.name for benchmark in compared.both] == ["step"]
    assert [benchmark.name for benchmark in compared.new] == ["second"]
    assert compared.notes == ("second: new: nothing to hold it against, because base has no mine.bench:second",)
    with pytest.raises(GateError, match=r"^benchmark 'second': workload: 'mine.bench:second': head has no such"):
        comparable([own("second")], tmp_path / "head", tmp_path / "base")
    with pytest.raises(GateError, match=r"base and head have no such function"):
        comparable([own("third")], tmp_path / "base", tmp_path / "head")


def test_a_compiled_module_is_taken_for_one_that_has_the_factory(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "bench.cpython-311-x86_64-linux-gnu.so").touch()
    assert comparable([own("step")], tmp_path, tmp_path).new == ()


def test_all_that_needs_the_wrapper_is_new_if_only_head_has_one(tmp_path):
    (tmp_path / "head" / "dpbench" / "parallel").mkdir(parents=True)
    for side in ("base", "head"):
        (tmp_path / side / "mine").mkdir(parents=True)
        (tmp_path / side / "mine" / "bench.py").write_text(OWN)
    tuned, floor = own("step"), own("step", variant="floor").model_copy(update={"name": "floor"})
    built_in = tuned.model_copy(update={"name": "built_in", "workload": "mlp/tiny"})
    compared = comparable([tuned, floor, built_in], tmp_path / "base", tmp_path / "head")
    assert [benchmark.name for benchmark in compared.new] == ["step", "built_in"]
    assert compared.notes[1] == "built_in: new: nothing to hold it against, because base has no dpbench/parallel"
    assert comparable([tuned, built_in], tmp_path / "head", tmp_path / "head").new == ()
    installed = own("elsewhere")
    assert comparable([installed], tmp_path / "head", tmp_path / "head").both == (installed,)


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Two commits: the second adds a factory, and both are in the settings."""
    folder = tmp_path / "repository"
    (folder / "mine").mkdir(parents=True)
    (folder / "benchmarks").mkdir()
    git(folder, "init", "--quiet", "--initial-branch", "main")
    (folder / "benchmarks" / "gate.toml").write_text(TABLE.format("step") + TABLE.format("second"))
    for text in (OWN, SECOND):
        (folder / "mine" / "bench.py").write_text(text)
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "-m", "one more")
    monkeypatch.chdir(folder)
    monkeypatch.setattr("dpbench.gate.sides.compile_sides", lambda *_: None)
    monkeypatch.setattr("dpbench.gate.prepare.fence_notes", lambda: ("no fence",))
    monkeypatch.setattr(tier0_cases, "checked_cases", lambda: [CASE])
    return folder


def gate(**answers):
    """Return the judgement of a gate of tier 0, and by folder what was counted.

    `answers` has the outcome of each workload's function on simulated devices.
    """
    counted = {}

    def launch(command, stdin_text, timeout_s):
        asked = CountJobs.model_validate_json(stdin_text)
        for folder in dict.fromkeys(job.folder for job in asked.jobs):
            workloads = [job.case.workload for job in asked.jobs if job.folder == folder]
            counted.setdefault(folder.rpartition("/")[2], []).append(workloads)
        return ended(0, CountRecords(records=tuple(map(answer, asked.jobs))).model_dump_json().encode())

    def answer(job):
        outcome = answers.get(job.case.workload.rpartition(":")[2], Outcome.OK)
        on_cpu = job.case.devices[0] == "cpu" and outcome is Outcome.SKIPPED
        if outcome is Outcome.OK or on_cpu:
            return record(case=job.case)
        return CountRecord(case=job.case, outcome=outcome, reason="devices: this torch is older")

    return run_gate(GateRequest("HEAD~1", tiers=(0,)), launch=launch), counted


def test_a_change_that_adds_a_benchmark_is_judged_by_the_others(repository):
    judgement, counted = gate()
    assert judgement.verdict is Verdict.PASS
    assert judgement.why == f"{UNTIMED}; new, with nothing to hold it against: second"
    note = "second: new: nothing to hold it against, because base has no mine.bench:second"
    assert judgement.notes == ("no fence", note)
    assert counted == {"base": [["mine.bench:step"] * 2], "head": [["mine.bench:second"] * 2, ["mine.bench:step"] * 2]}


def test_a_new_benchmark_must_work(repository):
    with pytest.raises(GateError, match=r"^head: mine\.bench:second: crashed: devices"):
        gate(second=Outcome.CRASHED)


def test_a_change_that_adds_the_first_benchmark_passes_and_claims_nothing(repository):
    (repository / "benchmarks" / "gate.toml").write_text(TABLE.format("second"))
    judgement, counted = gate()
    assert (judgement.verdict, judgement.why) == (Verdict.PASS, "new, with nothing to hold it against: second")
    assert "base" not in counted
    assert reliability(judgement)[1] == "smallest detectable change: not known, nothing was measured"


def test_a_change_that_adds_the_wrapper_is_judged_by_what_base_has(repository):
    (repository / "benchmarks" / "gate.toml").write_text(TABLE.format("step") + 'variant = "floor"\n')
    (repository / "dpbench" / "parallel").mkdir(parents=True)
    (repository / "dpbench" / "parallel" / "__init__.py").touch()
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "-m", "vendored")
    judgement, counted = gate()
    assert (judgement.verdict, judgement.why, judgement.counted_cases) == (Verdict.PASS, UNTIMED, 2)
    (repository / "benchmarks" / "gate.toml").unlink()
    judgement, counted = gate()
    assert judgement.why.startswith("new, with nothing to hold it against: launch_bound, many_parameters")
    assert counted["head"] == [["mlp/tiny"]]


def test_a_torch_that_the_simulator_does_not_know_decides_nothing(repository):
    judgement, _ = gate(step=Outcome.SKIPPED)
    assert judgement.verdict is Verdict.UNDECIDED
    assert judgement.why.startswith("tier 0 counted none of 1 cases on simulated devices: devices: this torch is older")
    claim = reliability(judgement)[1]
    counter = "a counter of the counted cases that is not tolerated"
    assert claim == f"smallest detectable change: a count of 1 in {counter} (1 of 2 cases counted)"
