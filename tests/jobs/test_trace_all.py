"""What the parent makes of the child that profiles a step: its answer, its failure, or none."""

from dpbench.cases.case import Case
from dpbench.cases.plan import Skip
from dpbench.cases.variants import VariantId
from dpbench.engine.launch import Exit
from dpbench.engine.messages import TraceJob, TraceRecord
from dpbench.jobs.trace_all import TRACER, trace_recorded
from dpbench.trace.timeline import VariantTrace
from tests.trace.made import step

STEP = TraceRecord(trace=VariantTrace("naive", step(), 0.25, notes=("a note",))).model_dump_json().encode()


def case(variant):
    return Case(variant=VariantId(variant), workload="mlp/tiny", batch=8, devices=("cpu", "cpu"), threads=1)


def answering(**fields):
    asked = []

    def launch(command, stdin_text, timeout_s, stop_fd=None):
        asked.append((command, TraceJob.model_validate_json(stdin_text).case))
        return Exit(**{"started_at": "", "duration_s": 1.0, "returncode": 0, **fields})

    return launch, asked


def traced(variant="naive", **fields):
    launch, asked = answering(**fields)
    (variant_trace,) = trace_recorded([case(variant)], launch=launch).variants
    return variant_trace, asked


def test_the_answer_of_the_child_is_drawn():
    traced_naive, asked = traced(record=STEP)
    assert asked == [(TRACER.command, case("naive"))]
    assert (traced_naive.step_s, traced_naive.notes) == (0.25, ("a note",))
    assert (tuple(traced_naive.timeline.spans), traced_naive.timeline.path) == (step().spans, step().path)


def test_a_child_that_fails_is_a_reason():
    failed = TraceRecord(trace=VariantTrace("naive", None, reason="MemoryError: too large"))
    assert traced(record=failed.model_dump_json().encode())[0].reason == "MemoryError: too large"
    failed_trace, _ = traced(returncode=1, tail=b"Traceback\nKeyError: 'x'\n")
    assert failed_trace.timeline is None
    assert failed_trace.reason.endswith(": KeyError: 'x'")
    assert "SIGKILL" in traced(returncode=-9)[0].reason


def test_a_variant_with_several_processes_is_not_asked_for():
    traced_ddp, asked = traced("ddp")
    assert asked == []
    assert traced_ddp.reason == "has one process for each device; allowed: variants with one process"


def test_what_the_plan_skipped_is_named_and_the_title_has_the_devices():
    launch, _ = answering(record=STEP)
    one = case("naive").model_copy(update={"devices": ("cpu",)})
    trace = trace_recorded([one], [Skip(case("torch_dp"), "needs GPUs")], launch=launch)
    assert trace.title == "mlp/tiny on cpu*2, batch 8"
    assert [(row.variant, row.reason) for row in trace.variants] == [("naive", None), ("torch_dp", "needs GPUs")]
