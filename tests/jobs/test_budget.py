"""Rounds are dropped before samples."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbench.cases.case import Case
from dpbench.cases.plan import CACHED_COMPILE_S, RoundCost, guessed_cost
from dpbench.jobs.budget import LEAST_ROUNDS, cost_of_round, plan_rounds, sentence
from dpbench.judge.least_samples import LEAST_S
from tests.engine.test_interpret import JOB
from tests.fakes import ok_record

FIVE = RoundCost(fixed_s=8.0, least_s=(1.0,) * 5)


def planned(left_s, cost=FIVE, rounds=5, least=LEAST_ROUNDS, most_s=60.0):
    return plan_rounds(cost, left_s, rounds, least, most_s)


def test_time_left_beside_the_least_samples_is_divided_evenly():
    plan = planned(100.0)
    assert (plan.rounds, plan.sampling_s, plan.total_s) == (5, pytest.approx(12 / 5), pytest.approx(100.0))


def test_a_short_budget_drops_rounds_and_keeps_the_least_samples():
    plan = planned(60.0)
    assert (plan.rounds, plan.sampling_s) == (4, pytest.approx(7 / 5))
    assert plan.total_s == pytest.approx(60.0)


@pytest.mark.parametrize("left_s", [-10.0, 0.0, 20.0])
def test_there_are_three_rounds_and_the_least_samples_at_least(left_s):
    assert planned(left_s) == planned(38.9)
    assert (planned(left_s).rounds, planned(left_s).sampling_s, planned(left_s).total_s) == (3, LEAST_S, 39.0)


def test_no_round_is_left_if_enough_were_taken():
    assert planned(12.9, least=0).rounds == 0
    assert planned(13.1, least=0).rounds == 1


def test_without_a_budget_each_case_samples_for_its_time():
    assert (planned(math.inf, most_s=1.5).rounds, planned(math.inf, most_s=1.5).sampling_s) == (5, 1.5)


def test_slow_cases_take_their_least_samples_and_the_others_share_the_rest():
    plan = planned(5 * 20.0, RoundCost(fixed_s=4.0, least_s=(10.0, 1.0, 1.0)))
    assert (plan.rounds, plan.sampling_s, plan.total_s) == (5, pytest.approx(3.0), pytest.approx(100.0))


@given(
    st.lists(st.floats(1.0, 30.0), min_size=1, max_size=8),
    st.floats(0.0, 60.0),
    st.floats(0.0, 2000.0),
    st.integers(3, 20),
)
def test_a_plan_fits_its_budget_or_is_the_shortest(least_s, fixed_s, left_s, rounds):
    cost = RoundCost(fixed_s, tuple(least_s))
    plan = planned(left_s, cost, rounds, most_s=math.inf)
    assert LEAST_ROUNDS <= plan.rounds <= rounds
    assert plan.sampling_s >= min(least_s) - 1e-9
    shortest_s = LEAST_ROUNDS * cost.shortest_s
    assert plan.total_s == pytest.approx(max(left_s, shortest_s), rel=1e-6, abs=1e-6) or plan.total_s < left_s


def test_the_cost_of_a_round_is_what_its_samples_do_not_explain():
    records = [ok_record(JOB, (0.01,) * 300), ok_record(JOB, (0.5,) * 5), ok_record(JOB, (0.1,) * 10)]
    cost = cost_of_round(records, 20.0)
    assert cost.fixed_s == pytest.approx(20.0 - 3.0 - 2.5 - 1.0)
    assert cost.least_s == (pytest.approx(1.0), pytest.approx(2.5), pytest.approx(2.0))


def test_accelerators_need_twice_the_samples():
    case = Case(variant="naive", workload="mlp/tiny", batch=8, devices=("cuda:0", "cuda:1"), threads=1)
    assert guessed_cost([case, case.model_copy(update={"devices": ("cpu",)})]).least_s == (2.0, 1.0)
    assert guessed_cost([case.of("ddp")]).fixed_s > guessed_cost([case]).fixed_s  # a process for each rank


def test_a_budget_that_suffices_needs_no_words():
    assert sentence(5, 5, 80.0, 5, 85.0) is None


def test_a_short_budget_is_said_with_what_it_will_take():
    assert sentence(5, 5, 80.0, 3, 99.6) == (
        "budget: 80 s is too short for 5 rounds of 5 cases: it takes 3 rounds, about 100 s"
    )
    assert sentence(1, 1, 1.0, 1, 9.0) == "budget: 1 s is too short for 1 round of 1 case: it takes about 9 s"


def test_later_rounds_find_compiled_code_in_a_cache():
    record = ok_record(JOB, (0.1,) * 10)
    compiled = record.model_copy(
        update={"metrics": record.metrics.model_copy(update={"compile_s": CACHED_COMPILE_S + 40.0})}
    )
    assert cost_of_round([compiled], 60.0).fixed_s == pytest.approx(60.0 - 1.0 - 40.0)
    case = Case(variant="ddp", workload="mlp/tiny", batch=8, devices=("cpu", "cpu"), threads=1)
    assert guessed_cost([case.of("ddp[compile=default]")]).fixed_s > guessed_cost([case]).fixed_s
