from io import StringIO

import pytest
from rich.console import Console, Group

from dpbench.report.comparison import phases_parts
from dpbench.results.phase_summary import PhaseSummary, summarise_phases
from tests.results.making import METRICS

FULL = {"forward": 0.5, "scatter": 0.1, "replicate": "no such method", "backward": 0.25, "optimiser": 0.002}


def phases(**fields: object) -> PhaseSummary:
    return summarise_phases([METRICS.model_copy(update=fields)])


def shown(width: int = 80, **found: PhaseSummary) -> list[str]:
    console = Console(width=width, file=StringIO())
    console.print(Group(*phases_parts(found)))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def cells(lines: list[str]) -> dict[str, list[str]]:
    return {words[0]: words[1:] for words in map(str.split, lines) if words}


def test_parts_are_indented_below_their_phase_with_one_unit() -> None:
    lines = shown(naive=phases(phases_s=FULL), tuned=phases(phases_s={**FULL, "replicate": 0.04}))
    assert lines[0] == "phases, ms"
    found = cells(lines)
    assert found["phase"] == ["naive", "tuned"]
    assert found["forward"] == ["500", "500"]
    assert found["replicate"] == ["-", "40.0"]
    assert any(line.startswith("   scatter") for line in lines)
    assert any(line.startswith(" backward") for line in lines)
    assert "replicate: no such method (naive)" in lines


def test_phases_that_no_variant_has_are_left_out_with_the_reason() -> None:
    lines = shown(naive=phases(phases_s=FULL))
    assert "replicate" not in cells(lines)
    assert "replicate: no such method" in lines


def test_a_phase_longer_than_the_step_is_marked_and_its_variant_named() -> None:
    naive = summarise_phases([METRICS.model_copy(update={"phases_s": FULL})], longest_step_s=0.359)
    lines = shown(naive=naive, tuned=phases(phases_s=FULL))
    found = cells(lines)
    assert found["forward"] == ["500", "≠", "500"]
    assert found["backward"] == ["250", "250"]
    assert "naive: its phases disagree with the step (≠): forward took longer than the whole step" in " ".join(lines)


def test_skew_and_lag_are_those_of_several_ranks() -> None:
    ranks = phases(phases_s=FULL, skew_s=(0.01, 0.02, 0.03), rank_lag_s=(0.0, 0.015))
    found = cells(shown(naive=phases(phases_s=FULL), ddp=ranks))
    assert found["skew"] == ["-", "20.0"]
    assert found["lag"] == ["-", "15.0", "(rank", "1)"]
    assert not {"skew", "lag"} & set(cells(shown(naive=phases(phases_s=FULL))))


def test_phases_are_of_rank_0_and_of_the_slowest_rank() -> None:
    slow = {**FULL, "forward": 0.7, "collectives": 0.3, "hidden": 0.1}
    ranks = phases(phases_s=FULL, phases_by_rank_s=(FULL, FULL, slow), rank_lag_s=(0.0, 0.01, 0.02))
    lines = shown(ddp=ranks)
    found = cells(lines)
    assert found["phase"] == ["ddp", "rank", "0", "ddp", "rank", "2"]
    assert found["forward"] == ["500", "700"]
    assert (found["collectives"], found["hidden"]) == (["-", "300"], ["-", "100"])
    assert found["lag"] == ["20.0", "(rank", "2)", "-"]


def test_if_rank_0_is_the_slowest_it_has_the_only_column() -> None:
    ranks = phases(phases_s=FULL, phases_by_rank_s=(FULL, FULL), rank_lag_s=(0.03, 0.0))
    assert cells(shown(ddp=ranks))["phase"] == ["ddp"]


def test_without_a_time_there_is_no_table() -> None:
    assert shown(naive=phases()) == shown() == []


@pytest.mark.parametrize("width", [40, 80])
def test_a_narrow_terminal_gets_the_variants_below_each_other(width: int) -> None:
    names = [f"tuned[bucket_bytes={size},dispatch=threads]" for size in (1024, 2048, 4096, 8192)]
    lines = shown(width, **dict.fromkeys(names, phases(phases_s=FULL)))
    assert all(len(line) <= width for line in lines if not line.startswith("replicate"))
    assert sum(line.startswith("phases, ms") for line in lines) > 1
    assert sum("dispatch=threads]" in line for line in lines) >= 1
    assert sum(line.count("500") for line in lines) == len(names)
