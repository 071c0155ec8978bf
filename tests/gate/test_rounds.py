"""The jobs that one round sends to its child, and the ratios or errors from the answer."""

from math import log, nan
from pathlib import Path

import pytest
from pydantic import ValidationError

from dpbench.engine.messages import LockstepJobs, LockstepRound, LockstepRounds, Side, SideName, Timed
from dpbench.errors import GateError
from dpbench.gate import rounds as rounds_module
from dpbench.gate.rounds import LOCKSTEP, RoundRatio, quietest_core, ratio_of, take_round
from dpbench.gate.settings import Cores
from dpbench.gate.sides import Sides
from dpbench.records.record import Outcome
from tests.fakes import ended
from tests.gate.making_rounds import benchmark, lockstep_round
from tests.records.making import ENVIRONMENT

USABLE = [0, 2, 3]
SUITE = [benchmark("wide"), benchmark("all", cores=Cores.ALL)]


def round_of(name, head=1.1):
    return lockstep_round([[1.0]], [[1.0]], [[head]]).model_copy(update={"benchmark": name})


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """Four cores, of which three are usable. Core 0 is the busiest, core 3 the least busy."""

    class Process:
        def cpu_affinity(self):
            return USABLE[::-1]

    monkeypatch.setattr(rounds_module.psutil, "Process", Process)
    monkeypatch.setattr(rounds_module.psutil, "cpu_percent", lambda interval, percpu: [90.0, 50.0, 20.0, 10.0])


def take(*rounds, number=7, asked=None, record=None, suite=SUITE):
    def launch(command, stdin_text, timeout_s):
        assert command == LOCKSTEP.command
        if asked is not None:
            asked.append((LockstepJobs.model_validate_json(stdin_text), timeout_s))
        answer = LockstepRounds(rounds=rounds, environment=ENVIRONMENT).model_dump_json().encode()
        return ended(
            0 if record is None else 1, answer if record is None else record, tail=b"Traceback\nthe last line\n"
        )

    sides = Sides(Path("/b"), Path("/h"), launch, head_environment={"wide": {"X": "1"}})
    return take_round(suite, sides, number, ("cpu",))


def failed(outcome, side=SideName.HEAD):
    return LockstepRound(benchmark="wide", outcome=outcome, reason="why", side=side)


def test_each_benchmark_is_a_job_and_has_its_cores():
    asked = []
    take(round_of("wide"), round_of("all"), asked=asked)
    ((jobs, timeout_s),) = asked
    one, every = jobs.jobs
    assert [job.benchmark for job in jobs.jobs] == ["wide", "all"]
    assert one.cores == (3,)
    assert every.cores == (0, 2, 3)
    assert (one.case, every.case) == (SUITE[0].case(len(USABLE), ("cpu",)), SUITE[1].case(len(USABLE), ("cpu",)))
    assert (one.case.threads, every.case.threads) == (1, len(USABLE))
    assert {job.seed for job in jobs.jobs} == {7}
    assert not any(job.checked for job in jobs.jobs)
    assert timeout_s >= one.timeout_s + every.timeout_s


def test_benchmarks_of_one_start_up_share_its_forks_and_another_case_has_its_own():
    starts = [
        benchmark(name).model_copy(update={"timed": timed, "batch": batch})
        for name, timed, batch in (
            ("import", Timed.IMPORT, 8),
            ("first", Timed.FIRST_FORWARD, 8),
            ("more", Timed.FIRST_FORWARD, 9),
            ("wide", Timed.IMPORT, 8),  # head has another environment
        )
    ]
    asked = []
    taken = take(*map(round_of, ("import", "first", "more", "wide")), asked=asked, suite=starts)
    ((jobs, _),) = asked
    assert jobs.jobs == ()
    assert [start_up.benchmarks for start_up in jobs.start_ups] == [
        {"import": Timed.IMPORT, "first": Timed.FIRST_FORWARD},
        {"more": Timed.FIRST_FORWARD},
        {"wide": Timed.IMPORT},
    ]
    assert {start_up.cores for start_up in jobs.start_ups} == {(3,)}
    assert set(taken.ratios) == {"import", "first", "more", "wide"}


def test_results_of_a_step_are_checked_in_the_first_round_only():
    asked = []
    take(round_of("wide"), round_of("all"), number=0, asked=asked)
    assert all(job.checked for job in asked[0][0].jobs)


def test_the_twin_has_bases_folder_and_only_head_has_the_environment():
    asked = []
    take(round_of("wide"), round_of("all"), asked=asked)
    one, every = asked[0][0].jobs
    base = Side(folder="/b")
    assert one.sides == {
        SideName.BASE: base,
        SideName.TWIN: base,
        SideName.HEAD: Side(folder="/h", environment={"X": "1"}),
    }
    assert every.sides[SideName.HEAD] == Side(folder="/h")


def test_rounds_become_ratios_by_name():
    taken = take(round_of("wide", 1.2), round_of("all"))
    assert taken.environment == ENVIRONMENT
    assert {name: ratio.median.head for name, ratio in taken.ratios.items()} == {
        "wide": pytest.approx(log(1.2)),
        "all": pytest.approx(log(1.1)),
    }


@pytest.mark.parametrize(
    ("side", "prefix"), [(SideName.HEAD, "head: "), (SideName.BASE, "base: "), (SideName.TWIN, "base: "), (None, "")]
)
@pytest.mark.parametrize("outcome", [Outcome.WRONG_RESULT, Outcome.TIME_OUT])
def test_a_failed_benchmark_raises_with_its_side_and_the_twin_is_called_base(side, prefix, outcome):
    with pytest.raises(GateError) as caught:
        take(round_of("all"), failed(outcome, side))
    assert str(caught.value) == f"{prefix}wide: {outcome.replace('_', ' ')}: why"


def test_a_child_without_an_answer_raises_with_its_last_line():
    with pytest.raises(GateError, match=r"^a round failed: ended with exit status 1: the last line$"):
        take(record=b"")


def test_the_quietest_core_is_a_usable_one(monkeypatch):
    monkeypatch.setattr(rounds_module.psutil, "cpu_percent", lambda *_, percpu: [0.0, 90.0, 10.0, 50.0])
    assert quietest_core([1, 2, 3]) == 2
    assert quietest_core([0, 1]) == 0
    assert quietest_core([3]) == 3


def test_head_is_compared_with_base_and_twin_and_the_twin_with_base():
    ratio = ratio_of(lockstep_round(base=[[1.0]], twin=[[1.21]], head=[[1.32]]))
    assert ratio.median.head == pytest.approx(log(1.2))
    assert ratio.median.twin == pytest.approx(log(1.21))
    assert ratio.base_s == pytest.approx(1.1)
    assert ratio.head_s == pytest.approx(1.32)
    assert ratio.cores == "0"


def test_a_block_counts_by_its_mean_and_a_round_by_the_median_of_its_blocks():
    head = [[1.0, 1.0, 4.0], [2.0, 2.0, 2.0], [50.0, 0.1, 0.1]]
    ratio = ratio_of(lockstep_round(base=[[1.0]] * 3, twin=[[1.0], [9.0], [1.0]], head=head))
    assert ratio.median.head == pytest.approx(log(2))
    assert ratio.head_s == pytest.approx(2)
    assert ratio.median.twin == 0


def test_a_drift_within_a_round_cancels_because_neighbours_are_compared():
    """The ratio of the medians of each side would be 20/12."""
    slowness, growth = (1.0, 2.0, 4.0), (1.1, 1.0, 1.05)
    base, head = [[s] for s in slowness], [[s * g] for s, g in zip(slowness, growth, strict=True)]
    ratio = ratio_of(lockstep_round(base=base, twin=[[3.0 * s] for s in slowness], head=head))
    assert ratio.median.head == pytest.approx(log(1.05) - log(3) / 2)
    assert ratio.median.twin == pytest.approx(log(3))


def test_the_mean_sees_a_block_that_the_median_does_not():
    """One step of head in 16 takes 17 times as long, so the mean doubles."""
    ratio = ratio_of(lockstep_round(base=[[1.0]] * 16, twin=[[1.0]] * 16, head=[[1.0]] * 15 + [[17.0]]))
    assert ratio.median.head == 0
    assert ratio.mean.head == pytest.approx(log(2))
    assert ratio.mean.twin == 0


def test_the_late_growth_is_that_of_heads_last_quarter_beside_base():
    slowness = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7]
    growing = [s * g for s, g in zip(slowness, [1.0, 1.0, 1.1, 1.1, 1.1, 1.1, 1.2, 1.2], strict=True)]
    ratio = ratio_of(lockstep_round(*([[s] for s in side] for side in (slowness, slowness, growing))))
    assert ratio.later.head == pytest.approx(log(1.2))
    assert ratio.later.twin == 0
    few = ratio_of(lockstep_round(*([[s] for s in side[:7]] for side in (slowness, slowness, growing))))
    assert (few.mean, few.later) == (None, None)


def test_nan_is_refused():
    valid = {"median": {"head": 0.0, "twin": 0.0}, "base_s": 1.0, "head_s": 1.0, "cores": "0"}
    assert RoundRatio(**valid).cores == "0"
    wrong = [
        {"base_s": nan},
        {"head_s": nan},
        *({"median": {**valid["median"], side: nan}} for side in ("head", "twin")),
    ]
    for values in wrong:
        with pytest.raises(ValidationError, match=next(iter(values))):
            RoundRatio(**valid | values)
