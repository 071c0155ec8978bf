"""How many rounds fit into a budget, and how long each case samples."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, inf

from dpbench.cases.plan import CACHED_COMPILE_S, RoundCost
from dpbench.judge.least_samples import least_seconds, seconds_of_least
from dpbench.records.record import Record

LEAST_ROUNDS = 3
USUAL = "70s"
"""The budget of a comparison that asks for no other one."""
COMPILING_S = 240.0
"""Further time limit of a compiled case: Inductor's cache may be empty."""
SETTLED_SHARE = 0.8
"""Of the time that is left after the first round, for the rounds that a default budget settles on: rounds differ."""


@dataclass(frozen=True)
class RoundPlan:
    """`sampling_s` is of one case in a round."""

    rounds: int
    sampling_s: float
    total_s: float


def cost_of_round(records: Sequence[Record], duration_s: float) -> RoundCost:
    """Of the next round, from the records of one that took `duration_s`. It finds compiled code in Inductor's cache."""
    taken = [record for record in records if record.samples_s]
    least = [seconds_of_least(record.samples_s, least_seconds(record.case.devices)) for record in taken]
    spans_s = [record.metrics.compile_s or 0.0 for record in taken if record.metrics is not None]
    saved_s = sum(max(0.0, span_s - CACHED_COMPILE_S) for span_s in spans_s)
    fixed_s = duration_s - saved_s - sum(sum(record.samples_s) for record in taken)
    return RoundCost(max(0.0, fixed_s), tuple(least))


def plan_rounds(
    cost: RoundCost, left_s: float, most_rounds: int, least_rounds: int, most_sampling_s: float
) -> RoundPlan:
    """The plan for the rounds that are left; rounds are dropped before samples."""
    fitting = most_rounds if left_s == inf else floor(max(left_s, 0.0) / max(cost.shortest_s, 1e-9))
    rounds = min(most_rounds, max(least_rounds, fitting))
    sampling_s = min(_sampling_s(left_s / max(rounds, 1) - cost.fixed_s, cost.least_s), most_sampling_s)
    of_samples_s = sum(max(sampling_s, least_s) for least_s in cost.least_s)
    return RoundPlan(rounds, sampling_s, rounds * (cost.fixed_s + of_samples_s))


def _sampling_s(share_s: float, least_s: Sequence[float]) -> float:
    """The seconds s of a case, so that the sum of max(s, least) is `share_s`; at least the shortest."""
    long = sorted(least_s, reverse=True)
    for index, least in enumerate(long):
        # The first cases are so slow that their least samples take longer than s.
        case_s = (share_s - sum(long[:index])) / (len(long) - index)
        if case_s >= least:
            return case_s
    return min(least_s, default=max(share_s, 0.0))


def sentence(asked_rounds: int, cases: int, budget_s: float, rounds: int, total_s: float) -> str | None:
    """None if the budget suffices. `total_s` includes what was taken."""
    if rounds == asked_rounds and total_s <= 1.1 * budget_s:
        return None
    asked = f"{asked_rounds} round{'s' * (asked_rounds > 1)} of {cases} case{'s' * (cases > 1)}"
    kept = f"{rounds} rounds, " if rounds < asked_rounds else ""
    return f"budget: {budget_s:g} s is too short for {asked}: it takes {kept}about {total_s:.0f} s"


def are_too_many(rounds: int, guess: RoundCost, budget_s: float) -> bool:
    return rounds * guess.shortest_s > 1.25 * budget_s


def differs(plan: RoundPlan, said: RoundPlan | None) -> bool:
    """Whether a plan has other rounds than the one that was reported, or takes a fifth longer."""
    return said is None or plan.rounds != said.rounds or plan.total_s > 1.2 * said.total_s


@dataclass
class Budget:
    """Plans the rounds that are left, after each round.

    `rounds` were asked for, `earlier` of them taken by an earlier call, and `left` remain. If it `settles`, their
    number is fixed after the first one. `said` is the plan that was reported.
    """

    rounds: int
    left: int
    earlier: int
    budget_s: float
    case_time_s: float
    settles: bool
    said: RoundPlan | None = None

    def plan(self, index: int, cost: RoundCost, elapsed_s: float, cases: int) -> tuple[RoundPlan, str | None]:
        """The plan from the round `index` of those left, and a line if the budget is too short."""
        complete, left_s = self.earlier + index, self.budget_s - elapsed_s
        least, most = max(LEAST_ROUNDS - complete, 0 if index else 1), self.left - index
        if self.settles and index:
            least, left_s = (least, left_s * SETTLED_SHARE) if index == 1 else (most, left_s)
        plan = plan_rounds(cost, left_s, most, least, self.case_time_s)
        if self.settles:
            self.left = index + plan.rounds if index == 1 else self.left
            return plan, None
        whole = RoundPlan(complete + plan.rounds, plan.sampling_s, elapsed_s + plan.total_s)
        note = sentence(self.rounds, cases, self.budget_s, whole.rounds, whole.total_s)
        is_told = index < self.left if index else are_too_many(self.left, cost, self.budget_s)
        if not is_told or note is None or not differs(whole, self.said):
            return plan, None
        self.said = whole
        return plan, note


def pace_s(planned_s: float, taken: int, elapsed_s: float) -> float:
    """The seconds of a case: the mean of those `taken`, and of two as planned."""
    return (2 * planned_s + elapsed_s) / (2 + taken)
