"""Every form of a judgement: as before, and none without a benchmark that does not pass."""

import json

import pytest

from dpbench.gate.judgement import Blame, Cause, FalseAlarms
from dpbench.report.gate.forms import gate_json, gate_markdown, gate_text
from dpbench.report.gate.per_benchmark import annotations, gate_junit
from tests.report.gate.making_gate import (
    ACCEPTED,
    ALL_ACCEPTED,
    EVERY,
    LANES,
    SLOWER,
    counter,
    drift,
    judged,
    ratio,
    time,
    unmeasured,
)
from tests.report.snapshots import assert_as_before, printed

COUNTED, TIMED, DRIFTED, UNDECIDED = (
    [f"{kind} {n}" for n in range(15)] for kind in ("counted", "timed", "drifted", "undecided")
)
MANY = judged(
    "slower",
    counted_cases=15,
    counters=tuple(counter(benchmark=name, counter=f"counter {n}") for n in range(3) for name in COUNTED),
    times=(*(time(name, "slower") for name in TIMED), *(time(name, "undecided") for name in UNDECIDED)),
    drifts=tuple(drift(benchmark=name) for name in DRIFTED),
)
CAUSE = Cause(what="aten.clone", function="A.f", file="a/b.py", lines=(3, 9), text="x.clone()", base=1, head=1_201)


def blamed(*benchmarks):
    """Return a judgement in which one cause made a counter of each benchmark worse, and groups of more counters."""
    blames = [Blame(benchmark=name, counter="forward.operators", causes=(CAUSE,), more=2) for name in benchmarks]
    others = [Blame(benchmark="c", counter=f"counter {n}", causes=(CAUSE,), more=0) for n in range(9)]
    every = (*blames, *others)
    counters = tuple(counter(benchmark=blame.benchmark, counter=blame.counter) for blame in every)
    return judged("slower", counted_cases=1, counters=counters, blames=every)


def as_text(judgement):
    return printed(gate_text(judgement), 200)


EARLIER = drift(since="2026-01-01")
MIXED = (counter(benchmark="mixed"), counter(benchmark="mixed", accepted=ACCEPTED, counter="other"))
JUDGEMENTS = {
    **EVERY,
    "many": MANY,
    "the slowest first": judged(
        times=(
            *(time("fast", ratio=ratio(0.5)), time("accepted", "slower", accepted=ACCEPTED)),
            *(time(LANES, "slower"), unmeasured("none")),
        ),
        false_alarms=FalseAlarms(alarms=1200, of=2000, upper=0.62, gates="twins"),
        duration_s=59.7,
    ),
    "what changed": blamed("one", "two", "three"),
    "noted": judged(counters=(counter(counter="forward.python_calls", traded_for="my_step"),)),
    "errors before notices": judged("slower", counters=(*ALL_ACCEPTED.counters, *MIXED), times=SLOWER.times),
    "accepted ones": judged(times=(time("a", "undecided", accepted=ACCEPTED), time("b", "broken", accepted=ACCEPTED))),
    "not worse": judged(counters=(counter(2, 1, is_worse=False), counter(1, None, is_worse=None, counter="gone"))),
    "a drift in a pass": judged(drifts=(EARLIER,)),
    "drifts of one benchmark": judged(
        "slower",
        tiers=(2,),
        drifts=(drift(accepted=ACCEPTED), EARLIER, drift(before_s=0.023, after_s=0.03, since="2026-02-02")),
    ),
    "only times": judged(tiers=(1,), counted_cases=420, times=(time(),)),
    "nothing counted": judged(times=(time(detectable=0.034), time(LANES), unmeasured())),
    "the whole does not pass": judged("slower", times=(time(),)),
    "a part counted": judged("undecided", counted_cases=1, uncounted_cases=1, tiers=(0,)),
    "broken after counting": judged("broken", counted_cases=5, tiers=(0, 2)),
}


WITH_TABLES = {*EVERY, "the slowest first", "what changed", "noted", "not worse", "nothing counted", "a part counted"}


@pytest.mark.parametrize("name", [name for name in JUDGEMENTS if name not in ("evil", "many")])
def test_every_form_is_as_before(name):
    judgement = JUDGEMENTS[name]
    forms = {
        "text": printed(gate_text(judgement), 100),
        "markdown": gate_markdown(judgement),
        "annotations": annotations(judgement),
        "junit": gate_junit(judgement),
    }
    if name not in WITH_TABLES:
        del forms["text"], forms["markdown"]
    text = "".join(f"======== {form}\n{written}\n" for form, written in forms.items())
    assert_as_before(f"gate/{name.replace(' ', '-')}.txt", text)


@pytest.mark.parametrize(
    "form",
    [gate_markdown, gate_junit, gate_json],
)
def test_every_benchmark_that_does_not_pass_is_in_every_form(form):
    written = form(MANY)
    written = written if isinstance(written, str) else json.dumps(written)
    assert [name for name in (*COUNTED, *TIMED, *DRIFTED, *UNDECIDED) if name not in written] == []


@pytest.mark.parametrize("form", [as_text, gate_markdown, gate_junit])
def test_figures_have_the_same_digits_in_every_form_for_people(form):
    written = form(judged("slower", times=(time("step", "slower"),)))
    written = written.replace("&#43;", "+").replace("&#91;", "[").replace("&#93;", "]")
    for figure in ("+1.0 %", "1.010 [1.000, 1.020]", "1.001 [0.997, 1.005]", "1.1 %", "2 %"):
        assert figure in written
