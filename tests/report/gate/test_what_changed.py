"""The code behind worse counters, in every form."""

import json
import re
from xml.etree import ElementTree as ET

from rich.console import Console

from dpbench.gate.judgement import Blame, Cause
from dpbench.report.gate.json_form import gate_json
from dpbench.report.gate.junit import gate_junit
from dpbench.report.gate.markdown import gate_markdown
from dpbench.report.gate.terminal import gate_text
from dpbench.report.gate.what_changed import MOST_GROUPS, what_changed
from tests.report.gate.making_gate import HOSTILE, counter, judged

CAUSE = Cause(what="aten.clone", function="A.f", file="a/b.py", lines=(3, 9), text="x.clone()", base=1, head=1_201)
LINE = "+1,200 (1 -> 1,201) aten.clone, in A.f at a/b.py:3, 9: x.clone()"


def judgement(*blames):
    counters = [counter(benchmark=blame.benchmark, counter=blame.counter) for blame in blames]
    return judged("slower", counted_cases=1, counters=tuple(counters), blames=blames)


def blame(benchmark="case", name="forward.operators", cause=CAUSE, more=0):
    return Blame(benchmark=benchmark, counter=name, causes=(cause,), more=more)


def shown(found):
    console = Console(width=200)
    with console.capture() as captured:
        console.print(gate_text(found))
    return captured.get()


def test_every_form_has_the_code():
    found = judgement(blame(more=2))
    text = shown(found)
    assert text.index("Counters that changed") < text.index("What changed") < text.index(LINE)
    assert "... and 2 more" in text
    cause = json.loads(json.dumps(gate_json(found)))["blames"][0]["causes"][0]
    assert (cause["lines"], cause["head"]) == ([3, 9], 1201)
    assert "  - " in gate_markdown(found).partition("#### What changed")[2]
    (case,) = ET.fromstring(gate_junit(found)).iter("failure")
    assert f"    {LINE}\n    ... and 2 more" in case.text


def test_the_same_causes_in_several_cases_are_one_group_and_many_groups_are_cut():
    ((heading, lines),) = what_changed(judgement(blame("one"), blame("two"), blame("three")))
    assert (heading, lines) == ("forward.operators of one and 2 more", (LINE,))
    many = what_changed(judgement(*(blame(name=f"c{i}") for i in range(MOST_GROUPS + 2))))
    assert len(many) == MOST_GROUPS + 1
    assert many[-1] == ("... and 2 more counters", ())


def test_without_a_blame_there_is_no_heading():
    found = judged("slower", counted_cases=1, counters=(counter(),))
    assert "What changed" not in shown(found) + gate_markdown(found)


def test_hostile_code_is_escaped_in_every_form():
    evil = CAUSE.model_copy(update=dict.fromkeys(("what", "function", "file", "text"), HOSTILE))
    found = judgement(blame(HOSTILE, HOSTILE, evil))
    assert "\x07" not in shown(found)
    assert not re.search(r"^\s*::|##\[", shown(found), re.MULTILINE)
    assert "<script>" not in gate_markdown(found)
    assert "@octocat" not in gate_markdown(found)
    ET.fromstring(gate_junit(found))
