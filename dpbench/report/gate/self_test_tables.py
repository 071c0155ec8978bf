"""The result of a gate's self-test, as tables and as JSON."""

from itertools import chain
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from dpbench.gate.self_test.result import SelfTest, Verdicts
from dpbench.report.gate.tables import Grid
from dpbench.report.gate.terminal import table
from dpbench.report.gate.wording import NONE, growth, share
from dpbench.report.units import number
from dpbench.results.record import Environment
from dpbench.stats.binomial import clopper_pearson


def self_test_text(found: SelfTest) -> RenderableType:
    """Return tables: the drawn gates, what they find by its size, the whole gates, and the recorded rounds."""
    grids = (_drawn, _power, _whole, _rounds) if found.power else (_drawn, _whole, _rounds)
    first, *others = [table(grid(found)) for grid in grids]
    return Group(*first, Text(), *chain.from_iterable(others))


def self_test_json(found: SelfTest) -> dict[str, Any]:
    """Return the fields of `SelfTest`, and the 95 % interval of each share of "slower"."""
    fields = found.model_dump(mode="json")
    for tested, written in zip(found.tested, fields["tested"], strict=True):
        written["drawn"]["slower_interval"] = clopper_pearson(tested.drawn.slower, tested.drawn.gates)
        written["whole"]["slower_interval"] = clopper_pearson(tested.whole.slower, tested.whole.gates)
    return {"schema": 1, **fields}


def machine(environment: Environment) -> str:
    return (
        f"{environment.cpu_model}, {environment.cores} cores, {environment.os}, "
        f"Python {environment.python}, torch {environment.torch}"
    )


def _drawn(found: SelfTest) -> Grid:
    """The drawn gates. "Slower" is a false alarm if head is equal, and right if head is slower."""
    return Grid(
        title=f"Gates drawn from the recorded rounds; {found.began[:10]}, {machine(found.environment)}",
        headers=("head is", "gates", "say slower", "undecided"),
        rows=tuple(
            (each.condition, str(each.drawn.gates), _share(each.drawn), str(each.drawn.undecided))
            for each in found.tested
        ),
        numbers=frozenset(("gates", "say slower", "undecided")),
        below=(
            f"With the 95 % interval. By design at most {share(found.alarm_rate)} of gates of equal code are called "
            f"slower. A gate may take {number(found.budget_s)} s. The slowdown is injected into one benchmark of a "
            "gate, in turn into each on one core whose threshold is below it.",
        ),
    )


def _power(found: SelfTest) -> Grid:
    return Grid(
        title="Slowdowns that drawn gates find, by size",
        headers=("rounds are of", "slower by", "gates", "say slower", "undecided", "median"),
        rows=tuple(
            (
                each.condition,
                share(each.growth),
                str(each.drawn.gates),
                _share(each.drawn),
                str(each.drawn.undecided),
                _seconds(each.median_s),
            )
            for each in found.power
        ),
        numbers=frozenset(("slower by", "gates", "say slower", "undecided", "median")),
        below=("The slowdown is added to recorded rounds of equal code.",),
    )


def _whole(found: SelfTest) -> Grid:
    return Grid(
        title="Gates run end to end",
        headers=("head is", "gates", "say slower", "undecided", "median", "longest"),
        rows=tuple(
            (
                each.condition,
                str(each.whole.gates),
                _share(each.whole),
                str(each.whole.undecided),
                _seconds(each.median_s),
                _seconds(each.longest_s),
            )
            for each in found.tested
        ),
        numbers=frozenset(("gates", "say slower", "undecided", "median", "longest")),
    )


def _seconds(time_s: float | None) -> str:
    return NONE if time_s is None else f"{time_s:.0f} s"


def _share(verdicts: Verdicts) -> str:
    if not verdicts.gates:
        return NONE
    low, high = clopper_pearson(verdicts.slower, verdicts.gates)
    return f"{verdicts.slower} = {share(verdicts.slower / verdicts.gates)} [{share(low)}, {share(high)}]"


def _rounds(found: SelfTest) -> Grid:
    return Grid(
        title="Recorded rounds; spreads are standard deviations between rounds",
        headers=("head is", "benchmark", "rounds", "head / base", "spread", "of base / base"),
        rows=tuple(
            (
                tested.condition,
                each.benchmark,
                str(each.rounds),
                growth(each.ratio),
                share(each.spread),
                share(each.twin_spread),
            )
            for tested in found.tested
            for each in tested.spreads
        ),
        numbers=frozenset(("rounds", "head / base", "spread", "of base / base")),
    )


def alarms_as_designed(found: SelfTest) -> bool:
    """False if the drawn gates of equal code prove more false alarms than the rule allows.

    That is: the lower end of the share's 95 % interval is above the alarm rate.
    """
    equal = [tested for tested in found.tested if not tested.condition.slowdown]
    return all(clopper_pearson(each.drawn.slower, each.drawn.gates)[0] <= found.alarm_rate for each in equal)
