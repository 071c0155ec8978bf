"""A self-test of the gate as tables: for a terminal, for a README, for machines."""

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from dpbench.gate.self_test.result import SelfTest, Spread, Verdicts
from dpbench.report.gate.tables import Grid
from dpbench.report.gate.terminal import table
from dpbench.report.gate.wording import NONE, growth, share
from dpbench.report.units import number
from dpbench.results.record import Environment
from dpbench.stats.binomial import clopper_pearson


def self_test_text(found: SelfTest) -> RenderableType:
    parts = [table(grid(found)) for grid in (_drawn, _whole, _rounds)]
    return Group(*parts[0], Text(), *parts[1], *parts[2])


def self_test_json(found: SelfTest) -> dict[str, Any]:
    """The result's own fields, and beside each count its share with the 95 % interval."""
    fields = found.model_dump(mode="json")
    for tested, told in zip(found.tested, fields["tested"], strict=True):
        told["drawn"]["slower_interval"] = clopper_pearson(tested.drawn.slower, tested.drawn.gates)
        told["whole"]["slower_interval"] = clopper_pearson(tested.whole.slower, tested.whole.gates)
    return {"schema": 1, **fields}


def machine(environment: Environment) -> str:
    return (
        f"{environment.cpu_model}, {environment.cores} cores, {environment.os}, "
        f"Python {environment.python}, torch {environment.torch}"
    )


def _drawn(found: SelfTest) -> Grid:
    """A gate that calls equal code slower is a false alarm, one that calls slower code slower has found it."""
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
            f"slower; a gate may take {number(found.budget_s)} s. A slowdown is planted in one benchmark of a gate, in "
            "turn in each that runs on one core.",
        ),
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


def _spreads(each: Spread) -> tuple[str, str]:
    return share(each.spread), share(each.twin_spread)


def alarms_as_designed(found: SelfTest) -> bool:
    """False where equal code was surely called slower more often than by design, as far as the drawn gates can tell."""
    equal = [tested for tested in found.tested if not tested.condition.planted]
    return all(clopper_pearson(each.drawn.slower, each.drawn.gates)[0] <= found.alarm_rate for each in equal)
