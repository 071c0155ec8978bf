"""A trace in words and as JSON."""

from dataclasses import replace

import pytest

from dpbench.report.trace_text import trace_json, trace_text, words
from dpbench.trace.timeline import Source, Trace, VariantTrace
from tests.report.snapshots import assert_as_before, printed
from tests.trace.made import move, step, timeline


@pytest.mark.parametrize("source", Source)
def test_text_and_json_are_as_before(source):
    variants = (VariantTrace("tuned", step(), 21.0, ("a note",)), VariantTrace("ddp", None, reason="has ranks"))
    trace = Trace(source, "mlp/small on m, batch 64", variants)
    assert_as_before(f"trace/{source}.txt", printed(trace_text(trace), 120))
    assert_as_before(f"trace/{source}.json", trace_json(trace))


def test_bytes_without_a_name_are_named_too():
    other = VariantTrace("v", timeline(replace(move(0, 1), moved=None)), 1.0)
    assert any("the bytes of lane 1" in line for line in words(other, Source.RECORDED))
