"""The child that profiles one step of a case: a TraceJob on stdin, a TraceRecord on the record pipe.

python -m dpbench.run.child.trace --record-fd N --parent-pid P
"""

import argparse
import sys

from dpbench.run.child.process import loading, send
from dpbench.run.messages import TraceJob, TraceRecord
from dpbench.run.process_tree import die_with_parent
from dpbench.trace.profiled import MARK, STEP_MARK, profiled_step


def main() -> None:
    options = _options()
    die_with_parent(options.parent_pid)
    job = TraceJob.model_validate_json(sys.stdin.read())
    send(options.record_fd, _profiled(job).model_dump_json())


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


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m dpbench.run.child.trace", description=__doc__)
    parser.add_argument("--record-fd", type=int, required=True)
    parser.add_argument("--parent-pid", type=int, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
