"""The judgement on a terminal."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbench.gate.judgement import Judgement
from dpbench.gate.settings import DEFAULT_BENCHMARKS
from dpbench.report.gate.forms import gate_text
from dpbench.report.gate.verdict_tables import one_line
from tests.report import snapshots
from tests.report.gate.making_gate import EVIL, counter, judged, time, unmeasured


def printed(judgement: Judgement, width: int = 80) -> str:
    return snapshots.printed(gate_text(judgement), width)


def cells(text: str, name: str) -> list[list[str]]:
    """The cells of the lines that begin with a name, in all tables."""
    lines = [line.split("  ") for line in text.splitlines() if line.strip().startswith(f"{name} ")]
    return [[cell.strip() for cell in line if cell.strip()] for line in lines]


def test_no_figure_is_broken_at_80_columns() -> None:
    name = "tuned|transformer/small|b64|cpu*2|train|float32|random|t2|s0"
    times = tuple(time(f"{name}{n}", "slower", base_step_s=123.4, head_step_s=1234.5) for n in range(3))
    bytes_ = counter(1_234_567_890, 1_234_567_999, benchmark=name, counter="backward copies sim:0->sim:1 bytes")
    text = printed(judged("slower", times=times, counters=(bytes_,)))
    assert max(map(len, text.splitlines())) <= 80
    for figure in (
        "1,234,567,890",
        "1,234,567,999",
        "1.010 [1.000, 1.020]",
        "1.001 [0.997, 1.005]",
        "1,234 ",
        "+1.0 %",
    ):
        assert figure in text
    assert "".join(text.split()).count("tuned|tran") >= 1
    assert all(f"s0{n}" in "".join(text.split()) for n in range(3))


@pytest.mark.parametrize("width", [80, 20_000])
def test_quoted_text_is_neither_markup_nor_a_command(width: int) -> None:
    text = printed(EVIL, width)
    assert "[red]r[/red]" in text
    assert not any(line.lstrip().startswith("::") for line in text.splitlines()), "GitHub's runner obeys it there"
    assert "##[" not in text, "GitHub's runner obeys a line that contains it"
    assert all(c.isprintable() for c in text.replace("\n", ""))
    assert one_line(EVIL.notes[0]).replace(" ::", " : :").replace("##[", "## [") in printed(EVIL, 20_000)


@given(st.text(st.sampled_from(":a/_ #["), max_size=60), st.integers(20, 120))
def test_no_line_of_any_width_is_a_command(text: str, width: int) -> None:
    shown = printed(judged(why=text, times=(time(text or "a", "slower"),), notes=(text,)), width)
    assert not any(re.match(r"\s*::.*::", line) for line in shown.splitlines())
    assert "##[" not in shown


@pytest.mark.parametrize("width", [20, 40, 80])
def test_no_fold_puts_a_command_at_the_beginning_of_a_line(width: int) -> None:
    names = [f"{'x' * number}::error::boom" for number in range(1, 90)]
    shown = printed(judged(times=tuple(time(name, "slower") for name in names), notes=names), width)
    assert not any(re.match(r"\s*::.*::", line) for line in shown.splitlines())


def test_a_node_id_can_be_copied() -> None:
    name = "tests/bench/test_step.py::test_forward_of_a_model[large-8]"
    shown = printed(judged("undecided", times=(unmeasured(name),)), 80)
    assert f"{name}: broken" in shown


def test_the_default_benchmarks_fit_into_80_columns() -> None:
    names = [benchmark.name for benchmark in DEFAULT_BENCHMARKS]
    text = printed(judged(times=tuple(time(name, "slower", cores="0-1") for name in names)))
    assert [len(cells(text, name)) for name in names] == [2] * len(names)
