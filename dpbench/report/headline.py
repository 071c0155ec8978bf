"""What a comparison says in a few sentences: what to use, how sure that is, how far from the limit, and what to do.

The page and the terminal show the same sentences. Pure.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dpbench.cases.case import Case
from dpbench.cases.devices import are_shared, short_devices
from dpbench.cases.variants import VariantId, VariantName
from dpbench.records.compare import Comparison, Row
from dpbench.records.phase_parts import largest_saving, phase_parts, share_of_moves
from dpbench.records.phase_summary import PhaseSummary
from dpbench.records.summary import Summary
from dpbench.records.winner import MOST_ROUNDS, Winner, rounds_to_decide, winner_of
from dpbench.report.next_command import next_command
from dpbench.stats.rounds import Estimate, ratio_of_rounds
from dpbench.text.quantities import number, time_unit

_LARGE_SHARE_OF_MOVES = 0.25
_NEAR_LIMIT_PERCENT = 90
_UNDECIDED = "; their order is not decided"
_LARGE_SAVING = 0.05
"""Of the step. A smaller saving explains nothing."""


@dataclass(frozen=True)
class Headline:
    """Sentences on one setting; those that have nothing to say are empty.

    `answer` names the variant to use, `certainty` its intervals, `limit` the distance from it, `bottleneck` the largest
    part of the step, `advice` what to do next, and `command` is what to type for it.
    """

    setting: Case
    answer: str
    certainty: str = ""
    limit: str = ""
    bottleneck: str = ""
    advice: str = ""
    command: str = ""

    @property
    def sentences(self) -> tuple[str, ...]:
        every = (self.answer, self.certainty, self.limit, self.bottleneck, f"{self.advice} {self.command}".strip())
        return tuple(each for each in every if each)


def headline(comparison: Comparison) -> Headline:
    """Return the sentences on a comparison."""
    winner = winner_of(comparison)
    if winner is None:
        thin = any(row.summary.thin_rounds for row in comparison.rows)
        why = "too few samples to rank a scheme" if thin else "no scheme has times"
        return Headline(comparison.setting, f"No answer: {why}; see the outcomes.")
    rows = {row.summary.case.variant: row for row in comparison.rows if row.summary.step_times_s}
    advice, rounds = _advice(winner)
    close = [winner.best, *(rows[rival].summary for rival in winner.rivals)]
    return Headline(
        comparison.setting,
        answer=_answer(winner, rows),
        certainty=" ".join(_certainty(winner, rows)),
        limit=_limit(winner, rows),
        bottleneck=" ".join(_bottleneck(winner.best, rows.get(comparison.reference) if comparison.reference else None)),
        advice=advice,
        command=next_command(close, rounds) if rounds else "",
    )


def place(setting: Case) -> str:
    """Return the setting in a few words, such as ``mlp/small, batch 64 on cpu*2``."""
    return f"{setting.workload}, batch {setting.batch} on {short_devices(setting.devices)}"


_Rows = Mapping[VariantId, Row]
_SINGLE, _FLOOR = VariantId(VariantName.SINGLE), VariantId(VariantName.FLOOR)


def _answer(winner: Winner, rows: _Rows) -> str:
    best = winner.best
    if winner.alone is not None and winner.is_slower_than_one_device:
        lanes, both = short_devices(best.case.devices), f"{_time(best)} against {_time(rows[_SINGLE].summary)}"
        return (
            f"Use one device here: the fastest scheme on {lanes}, {best.case.variant}, takes {_times(winner.alone)} "
            f"the time of one device, {both} a step."
        )
    if not winner.slower:
        figures = f"{_time(best)} a step, {_rate(best)} items a second."
        if len(rows) == 1:
            return f"Only {best.case.variant} was measured: {figures}"
        return f"No other scheme was measured to compare {best.case.variant} with: {figures}"
    if winner.is_decided:
        return f"Use {best.case.variant} here: {_time(best)} a step, {_rate(best)} items a second."
    names = " and ".join([best.case.variant, *winner.rivals])
    return (
        f"The fastest is not decided between {names}: {best.case.variant} has the shortest median, "
        f"{_time(best)} a step, {_rate(best)} items a second."
    )


def _certainty(winner: Winner, rows: _Rows) -> Iterator[str]:
    best = winner.best
    row = rows[best.case.variant]
    if winner.is_slower_than_one_device:
        return  # the answer says it, and the table the rest
    if row.ratio is not None and row.ratio.to != best.case.variant and not rows[row.ratio.to].summary.thin_rounds:
        yield f"{best.case.variant} takes {_times(row.ratio.times)} the time of {row.ratio.to}."
    for variant, ratio in list(winner.slower.items())[:1]:
        if row.ratio is None or row.ratio.to != variant:
            order = _UNDECIDED if variant in winner.rivals else ""
            yield f"The next, {variant}, takes {_times(ratio)} the time of {best.case.variant}{order}."
    if winner.alone is not None:
        may = "" if winner.is_faster_than_one_device else "; one device may be faster"
        yield f"It takes {_times(winner.alone)} the time of one device{may}."
    if best.rounds_ok == 1:
        yield "One round was measured, so there is no interval: the order is not sure."


def _limit(winner: Winner, rows: _Rows) -> str:
    best = winner.best
    percent = rows[best.case.variant].percent_of_limit
    if percent is not None:
        text = f"It reaches {percent:.0f} % of the limit, one device's time for its share alone"
        if best.case.variant.values.get("graphs") and percent > 100:
            return f"{text}, which has no graphs."
        return text + (": little is left to gain." if percent >= _NEAR_LIMIT_PERCENT else ".")
    if not are_shared(best.case.devices):
        return ""
    if _FLOOR in rows and not rows[_FLOOR].summary.thin_rounds:
        over = ratio_of_rounds(best.step_times_s, rows[_FLOOR].summary.step_times_s)
        return (
            f"These lanes share one device. {best.case.variant} takes {_times(over)} the time of floor, "
            f"one chunk after another on one copy of the weights{_undecided(over)}."
        )
    return "These lanes share one device."


def _undecided(ratio: Estimate) -> str:
    is_decided = ratio.low is None or ratio.high is None or not ratio.low <= 1 <= ratio.high
    return "" if is_decided else _UNDECIDED


def _bottleneck(best: Summary, reference: Row | None) -> Iterator[str]:
    parts = phase_parts(_agreeing(best), len(best.case.devices))
    total = sum(part.time_s for part in parts)
    if total > 0:
        largest = max(parts, key=lambda part: part.time_s)
        text = f"The largest part of its step is {largest.label}, {100 * largest.time_s / total:.0f} %"
        moves = share_of_moves(parts)
        yield f"{text}; moving data takes {100 * moves:.0f} %." if moves is not None else f"{text}."
    elif best.phases is not None and best.phases.disagreeing:
        yield "Its phases disagree with its step, so they explain nothing."
    yield from _collectives(best)
    saving = None if reference is None else largest_saving(_agreeing(best), _agreeing(reference.summary))
    if saving is not None and reference is not None and saving.other_s - saving.time_s >= _LARGE_SAVING * total:
        unit_s, unit = time_unit([saving.other_s])
        times = f"{number(saving.time_s / unit_s)} {unit} against {number(saving.other_s / unit_s)} {unit}"
        whole = "the whole " if saving.is_whole else ""
        yield f"It saves most time in {whole}{saving.name}: {times} in {reference.summary.case.variant}."


def _agreeing(summary: Summary) -> PhaseSummary | None:
    return None if summary.phases is None or summary.phases.disagreeing else summary.phases


def _collectives(best: Summary) -> Iterator[str]:
    known = {} if best.phases is None else best.phases.phases_s
    whole_s, hidden_s = (known[name].value if name in known else None for name in ("collectives", "hidden"))
    if whole_s and hidden_s is not None:
        unit_s, unit = time_unit([whole_s])
        yield (
            f"Its collectives take {number(whole_s / unit_s)} {unit} of a profiled step, "
            f"{100 * hidden_s / whole_s:.0f} % of it hidden behind computing."
        )


def _advice(winner: Winner) -> tuple[str, int]:
    """Return what to do next, and the rounds to measure for it, 0 if none."""
    best = winner.best
    if winner.is_slower_than_one_device:
        return "Next: try a larger batch.", 0
    if best.rounds_ok == 1 and winner.rivals:
        return "Next:", 5
    needed = [rounds_to_decide(winner.slower[rival], best.rounds_ok) for rival in winner.rivals]
    if needed and None in needed:
        return f"Next: take whichever is simpler; even {MOST_ROUNDS} rounds like these would not decide it.", 0
    if needed:
        return "Next, to decide it if the rounds stay as they are:", max(each for each in needed if each is not None)
    moves = share_of_moves(phase_parts(_agreeing(best)))
    if moves is not None and moves >= _LARGE_SHARE_OF_MOVES:
        return "Next: try a larger batch, because moving data is a large part and does not grow with it.", 0
    return "", 0


def _times(ratio: Estimate) -> str:
    interval = "" if ratio.low is None or ratio.high is None else f" [{number(ratio.low)}, {number(ratio.high)}]"
    return f"{number(ratio.value)}{interval} times"


def _time(summary: Summary) -> str:
    assert summary.step_time_s is not None
    unit_s, unit = time_unit([summary.step_time_s.value])
    return f"{number(summary.step_time_s.value / unit_s)} {unit}"


def _rate(summary: Summary) -> str:
    assert summary.items_per_s is not None
    return number(summary.items_per_s)
