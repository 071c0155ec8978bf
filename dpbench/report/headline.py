"""What a comparison says in a few sentences: what to use, how sure that is, how far from the limit, and what to do.

The page and the terminal show the same sentences. Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from dpbench.report.units import number, time_unit
from dpbench.results.compare import Comparison, Row
from dpbench.results.phase_parts import phase_parts, share_of_moves
from dpbench.results.summary import Summary
from dpbench.results.winner import Winner, is_above_one, rounds_to_decide, winner_of
from dpbench.stats.rounds import Estimate, ratio_of_rounds
from dpbench.sweep.case import Case
from dpbench.sweep.devices import are_shared, short_devices
from dpbench.sweep.variants import VariantName

_LARGE_SHARE_OF_MOVES = 0.25
_NEAR_LIMIT_PERCENT = 90


@dataclass(frozen=True)
class Headline:
    """Sentences on one setting; those that have nothing to say are empty.

    `answer` names the variant to use, `certainty` its intervals, `limit` the distance from it, `bottleneck` the largest
    part of the step, `advice` what to do next.
    """

    setting: Case
    answer: str
    certainty: str = ""
    limit: str = ""
    bottleneck: str = ""
    advice: str = ""

    @property
    def sentences(self) -> tuple[str, ...]:
        every = (self.answer, self.certainty, self.limit, self.bottleneck, self.advice)
        return tuple(each for each in every if each)


def headline(found: Comparison) -> Headline:
    """Return the sentences on a comparison."""
    winner = winner_of(found)
    if winner is None:
        return Headline(found.setting, f"No scheme has times for {place(found.setting)}: see the outcomes.")
    rows = {row.summary.case.variant.name: row for row in found.rows if row.summary.step_time_s is not None}
    single = rows.get(VariantName.SINGLE)
    alone = None if single is None else ratio_of_rounds(winner.best.step_times_s, single.summary.step_times_s)
    is_slower_than_one = alone is not None and is_above_one(alone)
    return Headline(
        found.setting,
        answer=_answer(winner, single.summary if single and is_slower_than_one else None, alone),
        certainty=" ".join(_certainty(found, winner)),
        limit=_limit(winner, rows.get(winner.best.case.variant.name), rows.get(VariantName.FLOOR), alone),
        bottleneck=_bottleneck(winner.best),
        advice=_advice(winner, is_slower_than_one=is_slower_than_one),
    )


def place(setting: Case) -> str:
    """Return the setting in a few words, such as ``mlp/small, batch 64 on cpu*2``."""
    return f"{setting.workload}, batch {setting.batch} on {short_devices(setting.devices)}"


def _answer(winner: Winner, single: Summary | None, alone: Estimate | None) -> str:
    best = winner.best
    if single is not None and alone is not None:
        return (
            f"Use one device here: the fastest scheme on several, {best.case.variant}, takes {_times(alone)} "
            f"the time of one device, {_time(best)} against {_time(single)} a step."
        )
    if not winner.slower:
        return f"Only {best.case.variant} was measured: {_time(best)} a step, {_rate(best)} items a second."
    if winner.is_decided:
        return f"Use {best.case.variant} here: {_time(best)} a step, {_rate(best)} items a second."
    names = " and ".join([best.case.variant, *winner.rivals])
    return (
        f"The fastest is not decided between {names}: {best.case.variant} has the shortest median, "
        f"{_time(best)} a step, {_rate(best)} items a second."
    )


def _certainty(found: Comparison, winner: Winner) -> Iterator[str]:
    best = winner.best
    row = next(row for row in found.rows if row.summary is best)
    if row.ratio is not None and row.ratio.to != best.case.variant:
        yield f"{best.case.variant} takes {_times(row.ratio.times)} the time of {row.ratio.to}."
    for variant, ratio in list(winner.slower.items())[:1]:
        if row.ratio is None or row.ratio.to != variant:
            yield f"The next, {variant}, takes {_times(ratio)} its time."
    if best.rounds_ok == 1:
        yield "One round was measured, so there is no interval: the order is not sure."
    else:
        yield f"In brackets: 95 % intervals over {best.rounds_ok} rounds, each a fresh process."


def _limit(winner: Winner, row: Row | None, floor: Row | None, alone: Estimate | None) -> str:
    best = winner.best
    if row is not None and row.percent_of_limit is not None:
        text = f"It reaches {row.percent_of_limit:.0f} % of the limit, one device's time for its share alone"
        return text + (": little is left to gain." if row.percent_of_limit >= _NEAR_LIMIT_PERCENT else ".")
    if not are_shared(best.case.devices):
        return ""
    if floor is not None and floor.summary.step_times_s:
        over = ratio_of_rounds(best.step_times_s, floor.summary.step_times_s)
        return (
            f"These lanes share one device. {best.case.variant} takes {_times(over)} the time of floor, "
            "the least work that a scheme can do on it."
        )
    if alone is not None:
        return f"These lanes share one device. {best.case.variant} takes {_times(alone)} the time of one lane alone."
    return ""


def _bottleneck(best: Summary) -> str:
    parts = phase_parts(best.phases)
    total = sum(part.time_s for part in parts)
    if total <= 0:
        return ""
    largest = max(parts, key=lambda part: part.time_s)
    text = f"The largest part of its step is {largest.name}, {largest.time_s / total:.0%}"
    moves = share_of_moves(parts)
    return f"{text}; moving data takes {moves:.0%}." if moves is not None else f"{text}."


def _advice(winner: Winner, *, is_slower_than_one: bool) -> str:
    best = winner.best
    needed = [rounds_to_decide(winner.slower[rival], best.rounds_ok) for rival in winner.rivals]
    rounds = max((each for each in needed if each is not None), default=None)
    if is_slower_than_one:
        return "Next: one device, or a larger batch for each device."
    if best.rounds_ok == 1 and winner.rivals:
        return "Next: measure with --rounds 5."
    if rounds is not None:
        return f"Next: --rounds {rounds} would decide it, if the rounds stay as they are."
    if winner.rivals:
        return "Next: take whichever is simpler; even 200 rounds like these would not decide it."
    moves = share_of_moves(phase_parts(best.phases))
    if moves is not None and moves >= _LARGE_SHARE_OF_MOVES:
        return "Next: try a larger batch, because moving data is a large part and does not grow with it."
    return ""


def _times(ratio: Estimate) -> str:
    interval = "" if ratio.low is None or ratio.high is None else f" [{number(ratio.low)}, {number(ratio.high)}]"
    return f"{number(ratio.value)}{interval} times"


def _time(found: Summary) -> str:
    assert found.step_time_s is not None
    unit_s, unit = time_unit([found.step_time_s.value])
    return f"{number(found.step_time_s.value / unit_s)} {unit}"


def _rate(found: Summary) -> str:
    assert found.items_per_s is not None
    return number(found.items_per_s)
