"""The child that profiles one step of a case: a TraceJob on stdin, a TraceRecord on the record pipe.

python -m dpbench.jobs.trace_child --record-fd N --parent-pid P
"""

from dpbench.engine.child import answer, loading
from dpbench.engine.messages import TraceJob, TraceRecord
from dpbench.trace.recorded import MARK, STEP_MARK, recorded_trace
from dpbench.trace.timeline import VariantTrace


def respond(job: TraceJob) -> TraceRecord:
    with loading():
        import torch
        import torch._dynamo  # torch.optim imports it for the first optimizer

        from dpbench.measure.profiled_step import profile_step
    variant = str(job.case.variant)
    try:
        profile = profile_step(job.case, MARK, STEP_MARK)
        trace = recorded_trace(variant, profile.content, profile.other_s, profile.reduction_nodes)
    except (MemoryError, torch.OutOfMemoryError, ValueError, NotImplementedError) as error:
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        trace = VariantTrace(variant, None, reason=reason)
    return TraceRecord(trace=trace)


if __name__ == "__main__":
    answer(respond)
