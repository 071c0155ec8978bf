"""All forms of a judgement name the same benchmarks and figures."""

import json
from collections.abc import Callable
from io import StringIO

import pytest
from rich.console import Console

from dpbench.gate.judgement import Judgement
from dpbench.report.gate.forms import gate_json, gate_markdown, gate_text
from dpbench.report.gate.per_benchmark import annotations, gate_junit
from tests.report.gate.making_gate import counter, drift, judged, time


def text(found: Judgement) -> str:
    console = Console(width=200, file=StringIO())
    console.print(gate_text(found))
    return console.file.getvalue()


FORMS: dict[str, Callable[[Judgement], str]] = {
    "text": text,
    "json": lambda found: json.dumps(gate_json(found)),
    "markdown": gate_markdown,
    "annotations": annotations,
    "junit": gate_junit,
}
COUNTED = [f"counted {n}" for n in range(15)]
TIMED = [f"timed {n}" for n in range(15)]
DRIFTED = [f"drifted {n}" for n in range(15)]
UNDECIDED = [f"undecided {n}" for n in range(15)]
MANY = judged(
    "slower",
    counted_cases=15,
    counters=tuple(counter(benchmark=name, counter=f"counter {n}") for n in range(3) for name in COUNTED),
    times=(*(time(name, "slower") for name in TIMED), *(time(name, "undecided") for name in UNDECIDED)),
    drifts=tuple(drift(benchmark=name) for name in DRIFTED),
)


@pytest.mark.parametrize("form", FORMS)
def test_every_benchmark_that_does_not_pass_is_in_every_form(form: str) -> None:
    written = FORMS[form](MANY)
    assert [name for name in (*COUNTED, *TIMED, *DRIFTED, *UNDECIDED) if name not in written] == []


@pytest.mark.parametrize("form", ["text", "markdown", "junit"])
def test_figures_have_the_same_digits_in_every_form_for_people(form: str) -> None:
    written = FORMS[form](judged("slower", times=(time("step", "slower"),)))
    written = written.replace("&#43;", "+").replace("&#91;", "[").replace("&#93;", "]")
    for figure in ("+1.0 %", "1.010 [1.000, 1.020]", "1.001 [0.997, 1.005]", "1.1 %", "2 %"):
        assert figure in written
