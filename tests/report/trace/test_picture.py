"""The picture and the words of a trace, without a browser."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from dpbench.report.trace_picture import bars_of, kind_of, round_step, style, svg
from dpbench.report.trace_text import trace_json, trace_text, words
from dpbench.trace.timeline import Moved, Source, Trace, VariantTrace
from tests.report.snapshots import assert_as_before, printed
from tests.trace.made import COPIES, MAIN, ONE, ZERO, compute, host, move, step, timeline

NS = "{http://www.w3.org/2000/svg}"
HOSTILE = "</desc><script>alert(1)</script>&\"'\x1b[2J\u202e<b>"


def made(*variants, source=Source.RECORDED, title="mlp/small on m, batch 64"):
    return Trace(source, title, variants or (VariantTrace("tuned", step(), 21.0, ("a note",)),))


def test_the_picture_is_xml_with_a_title_and_a_description():
    root = ET.fromstring(svg(made()))
    assert (root.get("role"), root.get("aria-labelledby")) == ("img", "trace-title trace-desc")
    assert root.find(f"{NS}title").text == "mlp/small on m, batch 64, recorded"
    described = root.find(f"{NS}desc").text
    assert "Recorded by torch.profiler" in described
    assert "device 0 waits 14.0 s (70%) for the gradients of lane 1 in the backward" in described
    assert described.endswith("(a note)")


def test_bars_are_where_their_times_are():
    rows = bars_of(step(), 10.0)
    bars = [(bar.kind, bar.x, bar.width) for bar in rows[ZERO]]
    assert bars == [
        *(("wait", 0, 10), ("wait", 30, 150)),
        *(("forward", 10, 20), ("backward", 180, 20), ("critical path", 180, 20)),
    ]
    assert rows[ZERO][1].text == "for the gradients of lane 1 (copy 1 to 0)"
    assert [(bar.kind, bar.x, bar.width) for bar in rows[COPIES]] == [
        *(("gradients", 40, 140), ("critical path", 40, 140)),
    ]
    assert rows[MAIN][0].kind == "host forward"
    assert "wait" not in {bar.kind for bar in bars_of(step(), 0.05)[ZERO]}  # less than a pixel


def test_bars_that_touch_are_one_and_others_are_not():
    spans = [compute(ZERO, i, i + 0.99) for i in range(100)] + [compute(ONE, i, i + 0.5) for i in range(100)]
    rows = bars_of(timeline(*spans), 1.0)
    assert [(bar.kind, bar.x, bar.spans) for bar in rows[ZERO]] == [("forward", 0, 100), ("critical path", 99, 1)]
    assert "<title>forward: 100 spans, from aten.mm.default on</title>" in svg(
        made(VariantTrace("v", timeline(*spans)))
    )
    assert len(bars_of(timeline(*spans), 10.0)[ONE]) == 100
    phases = timeline(compute(ZERO, 0, 4), compute(ZERO, 4, 9, 0, phase="backward"))
    assert [bar.kind for bar in bars_of(phases, 1.0)[ZERO]] == ["forward", "backward", "critical path"]


def test_two_variants_share_one_axis():
    short = timeline(compute(ZERO, 0, 10))
    root = ET.fromstring(svg(made(VariantTrace("a", step(), 20.0), VariantTrace("b", short, 10.0))))
    bars = [
        rect
        for rect in root.iter(f"{NS}rect")
        if rect.get("class") == "forward" and rect.find(f"{NS}title") is not None
    ]
    widths = [float(bar.get("width")) for bar in bars]
    assert widths[-1] == pytest.approx(10 / 3 * widths[1], rel=0.01)  # 10 s of b, and 3 s of a
    ticks = [text.text for text in root.iter(f"{NS}text") if text.get("class") == "tick"]
    assert ticks == ["0", "5", "10", "15", "20"] * 2


def test_every_colour_has_a_rule_in_light_and_dark_and_of_this_picture_alone():
    kinds = {kind_of(span) for span in every_kind()} | {"wait", "critical path"}
    assert len(kinds) == 6 + 3 + 3 + 1 + 2
    for kind in kinds:
        assert len(re.findall(rf"^\.trace \.{kind.replace(' ', '-')} \{{ fill: ", style(), re.MULTILINE)) == 2
    light, dark = style().split("@media screen and (prefers-color-scheme: dark) {")
    assert "var(" not in style()
    assert light.count("#") == dark.count("#")
    assert not set(re.findall(r": (#\w+)", light)) & set(re.findall(r": (#\w+)", dark))
    lines = [line for line in f"{light}\n{dark}".splitlines() if line not in ("", "}")]
    assert [line for line in lines if not re.match(r"\.trace( [^ ,]+)? \{", line)] == []


def every_kind():
    """Yield a span of each kind."""
    yield from (move(0, 1, moved=moved) for moved in (*Moved, None))
    for phase in ("forward", "backward", "optimiser", ""):
        yield from (compute(ZERO, 0, 1, phase=phase), host(0, 1, phase=phase))


def test_the_legend_has_the_kinds_that_are_drawn():
    root = ET.fromstring(svg(made()))
    shown = [text.text for text in root.iter(f"{NS}text") if text.get("class") == "label"]
    assert shown == [
        *("host forward", "critical path", "wait", "forward", "backward", "gradients"),
        *("host", "device 0", "device 1"),
    ]


def test_hostile_texts_stay_texts():
    trace = made(VariantTrace(HOSTILE, step(), 1.0, notes=(HOSTILE,)), title=HOSTILE)
    drawn = svg(trace)
    tags = {element.tag.removeprefix(NS) for element in ET.fromstring(drawn).iter()}
    assert tags == {
        "{http://www.w3.org/1999/xhtml}meta",
        *("svg", "title", "desc", "style", "defs", "pattern", "rect", "text", "line", "g"),
    }
    assert not re.search("[\x1b\u202e]", drawn)
    assert "&lt;script&gt;" in drawn


def test_steps_of_the_axis_are_round():
    assert [round_step(least) for least in (0.03, 1.0, 1.1, 3, 700)] == pytest.approx([0.05, 1, 2, 5, 1000])


@pytest.mark.parametrize("source", Source)
def test_text_and_json_are_as_before(source):
    variants = VariantTrace("tuned", step(), 21.0, ("a note",)), VariantTrace("ddp", None, reason="has ranks")
    trace = made(*variants, source=source)
    assert_as_before(f"trace/{source}.txt", printed(trace_text(trace), 120))
    assert_as_before(f"trace/{source}.json", trace_json(trace))


def test_bytes_without_a_name_are_drawn_too():
    other = replace(move(0, 1), moved=None)
    assert kind_of(other) == "bytes"
    assert any(
        "the bytes of lane 1" in line for line in words(VariantTrace("v", timeline(other), 1.0), Source.RECORDED)
    )
