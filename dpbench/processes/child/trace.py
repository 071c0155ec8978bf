"""The child that profiles one step of a case: a TraceJob on stdin, a TraceRecord on the record pipe.

python -m dpbench.processes.child.trace --record-fd N --parent-pid P
"""

from dpbench.processes.child.process import answer, loading
from dpbench.processes.messages import TraceJob, TraceRecord
from dpbench.trace.profiled import MARK, STEP_MARK, profiled_step


def respond(text: str) -> TraceRecord:
    return _profiled(TraceJob.model_validate_json(text))


def _profiled(job: TraceJob) -> TraceRecord:
    with loading():
        import torch
        import torch._dynamo  # torch.optim imports it for the first optimizer

        from dpbench.measure.profiled_step import profile_step
    try:
        found = profile_step(job.case, MARK, STEP_MARK)
        return TraceRecord(step=profiled_step(found.content, found.other_s, found.reduction_nodes))
    except (MemoryError, torch.OutOfMemoryError, ValueError, NotImplementedError) as error:
        return TraceRecord(reason=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")


if __name__ == "__main__":
    answer(respond)
