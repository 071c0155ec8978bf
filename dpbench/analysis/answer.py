"""The sentences and names that all reports print."""

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from dpbench.analysis.compare_variants import ComparedCase, Comparison, Comparisons, Winner
from dpbench.analysis.phase_summary import share_of_moves
from dpbench.analysis.summary import Summary
from dpbench.cases.case import Case
from dpbench.cases.names import are_shared, format_devices, short_devices
from dpbench.cases.plan import guessed_cost
from dpbench.cases.variants import VariantId, VariantName
from dpbench.judge.decision import MOST_ROUNDS, Verdict
from dpbench.judge.estimate import Estimate
from dpbench.judge.least_samples import least_seconds, seconds_of_least
from dpbench.text.quantities import duration, number

_LARGE_SHARE_OF_MOVES = 0.25
_NEAR_LIMIT_PERCENT = 90
_UNDECIDED = "; their order is not decided"
_LARGE_SAVING = 0.05
"""A share of the step."""
_SPARE = 1.3
"""Budgets are this many times what the rounds should take: rounds differ."""
_SINGLE = VariantId(VariantName.SINGLE)
_OPTIONS = {"modes": "mode", "dtypes": "dtype", "data": "data", "seed": "seed", "steps-per-sample": "steps_per_sample"}
"""Named if they differ from their defaults."""
PERCENT_OF = {
    False: ("limit", "one device's time for its share alone, over the time; only graphs exceed 100"),
    True: ("single", "one device's time for the whole batch, over the time; may exceed 100"),
}
"""Name and meaning of percentages, by whether lanes share a device."""
_IDEAL = {
    False: "one device's throughput with its share of the batch, times the number of devices",
    True: "one device's throughput with the whole batch, because the lanes share one device",
}
_IDEAL_OF_SCALING = {**_IDEAL, False: "one device's throughput times the number of devices"}


def place(setting: Case) -> str:
    """Such as ``mlp/small, batch 64 on cpu*2``."""
    return f"{setting.workload}, batch {setting.batch} on {short_devices(setting.devices)}"


def circumstances(setting: Case) -> str:
    """All but workload, batch and devices."""
    steps = "" if setting.steps_per_sample == 1 else f", {setting.steps_per_sample} steps per sample"
    beside = f"{setting.data} data, {setting.threads} threads, seed {setting.seed}{steps}"
    return f"{setting.mode}, {setting.dtype}, {beside}"


def ideal_in_words(settings: Iterable[Case], *, of_scaling: bool = False) -> str:
    """What 100 percent is; of scaling, in comparison with one device and the whole batch."""
    words = _IDEAL_OF_SCALING if of_scaling else _IDEAL
    return "; or ".join(words[is_shared] for is_shared in sorted({are_shared(setting.devices) for setting in settings}))


def load_warning(busy_cores: float, cores: int) -> str:
    return (
        f"Other processes kept {busy_cores:.1f} of {cores} cores busy meanwhile, so times are longer and orders less "
        "sure: stop them and measure again."
    )


@dataclass(frozen=True)
class Headline:
    """Sentences on one setting, maybe empty; `bottleneck` names the largest part of the step."""

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
        return tuple(sentence for sentence in every if sentence)


def headline(comparison: Comparison) -> Headline:
    winner, rows = comparison.winner, {row.summary.case.variant: row for row in comparison.fastest_first}
    if winner is None:
        why = "too few samples to rank a scheme" if any(row.summary.thin_rounds for row in rows.values()) else ""
        return Headline(comparison.setting, f"No answer: {why or 'no scheme has times'}; see the outcomes.")
    advice, rounds = _advice(winner)
    reference = rows[comparison.reference].summary if comparison.reference else None
    close = [winner.best, *(rows[rival].summary for rival in winner.rivals)]
    return Headline(
        comparison.setting,
        answer=_answer(winner, rows),
        certainty=" ".join(_certainty(winner, rows)),
        limit=_limit(winner.best, rows),
        bottleneck=" ".join(_bottleneck(winner.best, reference)),
        advice=advice,
        command=next_command(close, rounds) if rounds else "",
    )


def winners_in_words(comparisons: Comparisons) -> str:
    """One sentence on all settings; the answer itself for one."""
    settings = comparisons.comparisons
    if len(settings) < 2:
        return headline(settings[0]).answer if settings else "No setting has records."
    winners = [comparison.winner for comparison in settings if comparison.winner is not None]
    alone = sum(winner.is_slower_than_one_device for winner in winners)
    if alone == len(winners) > 0:
        return f"In all {alone} settings one device alone is faster than every scheme on several."
    wins = Counter(str(winner.best.case.variant) for winner in winners if not winner.rivals)
    undecided = len(winners) - wins.total()
    if not wins:
        return f"In none of {undecided:,} settings is one scheme the fastest for sure."
    names = ", ".join(f"{name} in {count}" for name, count in wins.most_common())
    text = f"Of {len(settings):,} settings, the fastest scheme is {names}"
    text += f"; not decided in {undecided}." if undecided else "."
    return f"{text} In {alone} settings one device alone is faster than every scheme on several." if alone else text


_Rows = Mapping[VariantId, ComparedCase]


def _answer(winner: Winner, rows: _Rows) -> str:
    best = winner.best
    name, time = best.case.variant, duration(best.time_s)
    if winner.single is not None and winner.alone is not None and winner.is_slower_than_one_device:
        lanes, both = short_devices(best.case.devices), f"{time} against {duration(winner.single.time_s)}"
        return (
            f"Use one device here: the fastest scheme on {lanes}, {name}, takes {_times(winner.alone)} "
            f"the time of {_one_device(winner.single)}, {both} a step."
        )
    figures = f"{time} a step, {number(best.items_per_s or 0.0)} items a second."
    if not winner.slower:
        only = f"Only {name} was measured" if len(rows) == 1 else f"No other scheme was measured to compare {name} with"
        return f"{only}: {figures}"
    if not winner.rivals:
        return f"Use {name} here: {figures}"
    names = " and ".join([name, *winner.rivals])
    return f"The fastest is not decided between {names}: {name} has the shortest median, {figures}"


def _one_device(single: Summary) -> str:
    """The variant's name only if that says more."""
    return "one device" if single.case.variant == _SINGLE else f"one device ({single.case.variant})"


def _certainty(winner: Winner, rows: _Rows) -> Iterator[str]:
    if winner.is_slower_than_one_device:
        return  # the answer says it, and the table the rest
    best = winner.best
    name, row = best.case.variant, rows[best.case.variant]
    if row.ratio and row.reference and row.reference != name and not rows[row.reference].summary.thin_rounds:
        yield f"{name} takes {_times(row.ratio)} the time of {row.reference}."
    for variant, ratio in list(winner.slower.items())[:1]:
        if row.reference != variant:
            order = _UNDECIDED if variant in winner.rivals else ""
            yield f"The next, {variant}, takes {_times(ratio)} the time of {name}{order}."
    if winner.single is not None and winner.alone is not None:
        may = "" if winner.alone.verdict is Verdict.FASTER else "; one device may be faster"
        yield f"It takes {_times(winner.alone)} the time of {_one_device(winner.single)}{may}."
    if best.rounds_ok == 1:
        yield "One round was measured, so there is no interval: the order is not sure."


def _limit(best: Summary, rows: _Rows) -> str:
    name = best.case.variant
    percent = rows[name].percent_of_limit
    if percent is not None:
        text = f"It reaches {percent:.0f} % of the limit, one device's time for its share alone"
        if name.values.get("graphs") and percent > 100:
            return f"{text}, which has no graphs."
        return text + (": little is left to gain." if percent >= _NEAR_LIMIT_PERCENT else ".")
    if not are_shared(best.case.devices):
        return ""
    text = "These lanes share one device."
    floors = [row.summary for variant, row in rows.items() if variant.name is VariantName.FLOOR]
    if floor := next((summary for summary in floors if not summary.thin_rounds), None):  # they are fastest first
        over = best.ratio_to(floor)
        order = _UNDECIDED if over.low is not None and over.verdict is Verdict.UNDECIDED else ""
        what = "one chunk after another on one copy of the weights"
        text += f" {name} takes {_times(over)} the time of {floor.case.variant}, {what}{order}."
    return text


def _bottleneck(best: Summary, reference: Summary | None) -> Iterator[str]:
    phases = best.agreeing_phases
    parts = phases.parts(len(best.case.devices))
    total = sum(part.time_s for part in parts)
    if total > 0:
        largest = max(parts, key=lambda part: part.time_s)
        moves = share_of_moves(parts)
        more = "" if moves is None else f"; moving data takes {100 * moves:.0f} %"
        yield f"The largest part of its step is {largest.label}, {100 * largest.time_s / total:.0f} %{more}."
    elif best.phases.disagreeing:
        yield "Its phases disagree with its step, so they explain nothing."
    whole_s, hidden_s = (best.phases.times_s.get(name) for name in ("collectives", "hidden"))
    if whole_s and hidden_s is not None:
        share = f"{100 * hidden_s / whole_s:.0f} % of it hidden behind computing"
        yield f"Its collectives take {duration(whole_s)} of a profiled step, {share}."
    saving = None if reference is None else phases.largest_saving(reference.agreeing_phases)
    if saving is not None and reference is not None and saving.saved_s >= _LARGE_SAVING * total:
        times = f"{duration(saving.time_s)} against {duration(saving.other_s)} in {reference.case.variant}"
        yield f"It saves most time in {'the whole ' if saving.is_whole else ''}{saving.name}: {times}."


def _advice(winner: Winner) -> tuple[str, int]:
    best = winner.best
    if winner.is_slower_than_one_device:
        return "Next: try a larger batch.", 0
    if best.rounds_ok == 1 and winner.rivals:
        return "Next:", 5
    needed = [winner.slower[rival].rounds_to_decide(best.rounds_ok) for rival in winner.rivals]
    if None in needed:
        return f"Next: take whichever is simpler; even {MOST_ROUNDS} rounds like these would not decide it.", 0
    if needed:
        return "Next, to decide it if the rounds stay as they are:", max(rounds for rounds in needed if rounds)
    moves = share_of_moves(best.agreeing_phases.parts())
    if moves is not None and moves >= _LARGE_SHARE_OF_MOVES:
        return "Next: try a larger batch, because moving data is a large part and does not grow with it.", 0
    return "", 0


def _times(ratio: Estimate) -> str:
    return f"{ratio.text()} times"


def next_command(summaries: Sequence[Summary], rounds: int) -> str:
    """``dpbench compare ...`` for these schemes of one setting, with a budget that suffices.

    Code of Python's `dpbench.compare` and several machines fit no command line.
    """
    setting = summaries[0].case
    limits = f"--rounds {rounds} --budget {_budget_s(summaries, rounds):.0f}s"
    if setting.machines > 1 or setting.workload.startswith("given:"):
        return f"the same with {limits}"
    options: dict[str, object] = {
        "variants": ",".join(summary.case.variant for summary in summaries),
        "workloads": setting.workload,
        "batch": setting.batch,
        "devices": format_devices(setting.devices),
        "threads": setting.threads,
    }
    for option, field in _OPTIONS.items():
        value = getattr(setting, field)
        options |= {option: value} if value != Case.model_fields[field].default else {}
    words = " ".join(f"--{option} {shlex.quote(str(value))}" for option, value in options.items())
    return f"dpbench compare {words} {limits}"


def _budget_s(summaries: Sequence[Summary], rounds: int) -> float:
    """In whole tens, with the single-device baseline."""
    cost = guessed_cost([summary.case for summary in (*summaries, summaries[0])])
    sampled_s = [_sampled_s(summary) for summary in summaries]
    return 10 * ceil(_SPARE * rounds * (cost.fixed_s + sum(sampled_s) + max(sampled_s)) / 10)


def _sampled_s(summary: Summary) -> float:
    samples_s = [step_s * summary.case.steps_per_sample for times_s in summary.step_times_s for step_s in times_s]
    return seconds_of_least(samples_s, least_seconds(summary.case.devices))
