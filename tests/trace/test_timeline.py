"""The Perfetto file: its structure, names and times."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from dpbench.trace.timeline import Source, Trace, VariantTrace, perfetto
from tests.trace.made import ZERO, compute, step, timeline
from tests.trace.trace_events import faults


def written(*timelines, source=Source.RECORDED, notes=()):
    variants = [VariantTrace(f"v{number}", drawn, notes=notes) for number, drawn in enumerate(timelines)]
    return perfetto(Trace(source, "mlp/small on m", variants))


def spans_of(content):
    return [event for event in content["traceEvents"] if event["ph"] == "X"]


def test_the_file_is_well_formed_and_variants_are_processes_of_their_own():
    content = written(step(), step())
    assert faults(content) == []
    names = [e["args"]["name"] for e in content["traceEvents"] if e["name"] == "process_name"]
    assert names == [
        f"v{number} (recorded): {group}" for number in (0, 1) for group in ("host", "device 0", "device 1")
    ]
    assert len(spans_of(content)) == 2 * (5 + 3)


def test_the_structural_test_finds_faults():
    content = written(step())
    assert "process" in faults({"traceEvents": content["traceEvents"][1:]})[0]
    spans = spans_of(content)
    rest = [event for event in content["traceEvents"] if event["ph"] == "M"]
    assert faults({"traceEvents": [*rest, {**spans[0], "dur": -1}]}) != []
    assert faults({"traceEvents": [*rest, spans[0], spans[0]]}) != []
    assert faults({"traceEvents": [*rest, {"ph": "B", "name": "a", "pid": 1}]}) == ["unknown kind B"]


def test_times_are_microseconds_and_a_units_length_is_a_millisecond():
    last = max(spans_of(written(step())), key=lambda event: event["ts"])
    assert (last["ts"], last["dur"]) == (18e6, 2e6)
    last = max(spans_of(written(step(), source=Source.SIMULATED)), key=lambda event: event["ts"])
    assert (last["ts"], last["dur"]) == (18e3, 2e3)


def test_spans_say_what_they_are():
    content = written(step(), notes=("a note",))
    moved = next(event for event in spans_of(content) if event["args"]["doing"] == "move")
    assert moved["args"] == {"doing": "move", "critical": True, "moved": "gradients", "lane": 1}
    waits = [event["name"] for event in spans_of(content) if event["cat"] == "wait"]
    assert waits.count("waits for copy 1 to 0") == 1
    assert content["otherData"]["notes"] == ["v0: a note"]
    simulated = written(step(), source=Source.SIMULATED)["otherData"]
    assert "An order without times" in simulated["notes"][0]


def test_a_variant_without_a_timeline_is_a_note():
    content = perfetto(Trace(Source.RECORDED, "t", [VariantTrace("ddp", None, reason="has ranks")]))
    assert content["traceEvents"] == []
    assert content["otherData"]["notes"] == ["ddp: has ranks"]


@given(st.lists(st.tuples(st.floats(0, 1e-3), st.floats(0, 1e-3)), max_size=30))
def test_rounding_makes_no_spans_overlap(steps):
    spans, at = [], 0.0
    for gap, length in steps:
        before = (len(spans) - 1,) if spans else ()
        spans.append(replace(compute(ZERO, at + gap, at + gap + length), before=before))
        at = spans[-1].finish
    assert faults(written(timeline(*spans))) == []
