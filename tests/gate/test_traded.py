"""Which Python calls are traded for a measured time."""

from datetime import date

import pytest

from dpbench.gate import prepare, run_gate
from dpbench.gate.judgement import Accepted, TimeRatio
from dpbench.gate.overall_verdict import overall_verdict
from dpbench.gate.prepare import GateRequest
from dpbench.gate.settings import Benchmark, Settings
from dpbench.gate.tier1 import Times
from dpbench.gate.traded import timed_by, with_trades
from dpbench.results.counts import CountRecord, Counts, Phase, PhaseCounts
from dpbench.results.record import Outcome
from dpbench.run.messages import CountJobs, CountRecords
from dpbench.sweep.names import Mode
from tests.cli.repositories import git
from tests.fakes import ended
from tests.gate.test_counters import CASE
from tests.report.gate.making_gate import counter, time, unmeasured
from tests.results.making import ENVIRONMENT

CALLS, OTHER = "forward.python_calls", "counts convnet/tiny cpu*4"
ENTRY = Accepted(benchmark="*", revision="0123456789", reason="it had to be", expires=date(2027, 1, 1))
TIMED = {"counts mlp/tiny cpu*4": ("a", "b"), "counts x": ("c",), OTHER: ()}


def calls(base=1000, head=1001, benchmark="counts mlp/tiny cpu*4", **fields):
    return counter(base, head, benchmark=benchmark, **{"counter": CALLS, **fields})


def timed(name, high, verdict="pass"):
    return time(name, verdict, ratio=TimeRatio(value=high - 0.01, low=high - 0.02, high=high))


def traded(changes, times):
    found = with_trades(changes, times, TIMED)
    assert [each.model_copy(update={"traded_for": None}) for each in found] == list(changes)
    return [each.traded_for for each in found]


@pytest.mark.parametrize(
    ("change", "a", "b", "is_traded"),
    [
        (calls(), 0.96, 0.97, True),
        (calls(1000, 2000), 0.99, 0.99, True),  # faster: any number of calls
        (calls(None, 3), 0.99, 0.99, True),
        (calls(), 1.009, 0.96, True),
        (calls(1000, 1020), 1.009, 1.009, True),  # as fast: 2 % more calls
        (calls(1000, 1021), 1.009, 1.009, False),
        (calls(1000, 1021), 1.0, 0.9, False),  # the bound excludes an equal time only below 1
        (calls(None, 3), 1.005, 1.005, False),
        (calls(), 1.01, 0.9, False),
        (calls(), 0.9, 1.02, False),  # every timed benchmark of the case must allow it
        *(
            (calls(counter=name), 0.9, 0.9, False)
            for name in ("forward.operators", "forward.kernels", "forward.allocations")
        ),
        (calls(counter="backward.copies.sim:0->sim:1.size_bytes"), 0.9, 0.9, False),
        (calls(counter="forward.host_calls.synchronize"), 0.9, 0.9, False),
        (calls(counter="forward.peak_bytes.sim:0"), 0.9, 0.9, False),
        (calls(1001, 1000, is_worse=False), 0.9, 0.9, False),
        (calls(accepted=ENTRY), 0.9, 0.9, False),
    ],
)
def test_only_a_time_that_is_not_longer_outvotes_python_calls(change, a, b, is_traded):
    assert traded([change], [timed("a", a), timed("b", b)]) == ["a, b" if is_traded else None]


@pytest.mark.parametrize("verdict", ["slower", "undecided"])
def test_a_time_that_did_not_pass_outvotes_nothing(verdict):
    assert traded([calls()], [timed("a", 0.9, verdict), timed("b", 0.9)]) == [None]


def test_tier_0_alone_trades_nothing():
    assert traded([calls()], []) == [None]
    assert traded([calls(), calls(benchmark=OTHER)], [unmeasured("a", "pass"), timed("b", 0.9)]) == [None, None]


def test_a_case_without_times_is_traded_for_calls_that_other_times_have_seen():
    times = [timed("a", 0.9), timed("b", 0.9)]
    assert traded([calls(50, 52), calls(10, 12, OTHER)], times) == ["a, b", "a, b"]
    assert traded([calls(50, 52), calls(10, 13, OTHER)], times) == ["a, b", None]
    assert traded([calls(10, 12, OTHER)], times) == [None]
    assert traded([calls(50, 52), calls(10, 12, OTHER, counter="backward.python_calls")], times) == ["a, b", None]
    assert traded([calls(50, 52), calls(10, 11, "counts x")], [*times, timed("c", 1.02)]) == ["a, b", None]


def test_a_case_is_timed_by_the_benchmarks_of_its_workload_in_its_mode():
    same, infer = (
        Benchmark(name=name, workload="mlp/tiny", batch=64, devices="cpu*4", mode=mode, threshold=0.03)
        for name, mode in (("same", Mode.TRAIN), ("infer", Mode.INFER))
    )
    other = same.model_copy(update={"name": "other", "workload": "mlp/small"})
    assert timed_by({"counted": CASE}, [same, infer, other]) == {"counted": ("same",)}


def test_the_verdict_says_traded_and_passes_only_if_nothing_else_is_worse():
    times = [timed("a", 0.95), timed("b", 0.95)]
    verdict, why = overall_verdict(with_trades([calls()], times, TIMED), times, ())
    assert (verdict, why) == (
        "pass",
        "nothing is slower; traded: 1 counters of Python calls are worse, and the step times are not",
    )
    with_operator = with_trades([calls(), calls(counter="forward.operators")], times, TIMED)
    assert overall_verdict(with_operator, times, ()) == ("slower", "1 counter is worse, of 1 case")


def counted(command, stdin_text, timeout_s):
    """A launcher: head makes one Python call more than base."""
    asked = CountJobs.model_validate_json(stdin_text)
    phases = {Phase.FORWARD: PhaseCounts(python_calls=100 + asked.folder.endswith("head"))}
    records = tuple(
        CountRecord(case=job.case, outcome=Outcome.OK, counts=Counts(phases=phases), environment=ENVIRONMENT)
        for job in asked.jobs
    )
    return ended(0, CountRecords(records=records).model_dump_json().encode())


@pytest.mark.parametrize(
    ("tiers", "high", "verdict"), [((0, 1), 0.97, "pass"), ((0, 1), 1.02, "slower"), ((0,), 0.97, "slower")]
)
def test_a_whole_gate_trades_a_call_for_a_shorter_time(tmp_path, monkeypatch, tiers, high, verdict):
    (tmp_path / "mine.py").write_text("def step(): ...\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    for message in ("base", "head"):
        git(tmp_path, "commit", "--quiet", "--allow-empty", "-m", message)
    monkeypatch.chdir(tmp_path)
    settings = Settings(
        benchmarks=(Benchmark(name="a", workload="mine:step", batch=8, devices="cpu*2", threshold=0.03),)
    )
    monkeypatch.setattr(prepare, "timed_settings", lambda *_: (("cpu",), settings))
    monkeypatch.setattr(prepare, "_read_settings", lambda *_: settings)
    monkeypatch.setattr(run_gate, "measure_times", lambda *_, **__: Times((timed("a", high),), {}, None))
    found = run_gate.run_gate(GateRequest("HEAD~1", tiers=tiers), launch=counted)
    assert found.verdict == verdict
    assert [(each.base, each.head, each.traded_for) for each in found.counters] == [
        (100, 101, "a" if verdict == "pass" else None)
    ] * 2
