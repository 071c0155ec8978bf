"""What the host does in a training step, eagerly and by graphs, on the stand-in's devices.

    DPBENCH_CUDA_DEVICES=8 .venv-cuda/2.14.1/bin/python -m tests.cuda_stand_in.graph_calls [WORKLOAD]

`host calls` are those between devices' work: kernels and copies that are launched, launches of graphs, events, waits.
Those of a bucket's hop, down and up again, are the difference of two sizes of buckets, over the copies.
Python calls are those of the calling thread; those of the engine's threads in backward are not counted.
"""

import gc
import sys

import torch

from benchmarks.instruments.about import heading
from dpbench.cases.case import Case
from dpbench.cases.variants import VariantId
from dpbench.measure.python_calls import PythonCalls
from dpbench.measure.session import open_session
from tests.cuda_stand_in import control

BATCH = 64
STEPS_BEFORE = 5
HOST_CALLS = ("works", "graph_launches", "events_recorded", "waits")
SIZES = ("bucket_bytes=65536,first_bucket_bytes=65536", "bucket_bytes=262144,first_bucket_bytes=262144")


def calls_of(variant: str, workload: str) -> tuple[dict[str, int], int, int, int]:
    """Return the host's calls of a step by kind, its Python calls, and bytes on device 0: at the peak, and reserved."""
    count = torch.cuda.device_count()
    devices = tuple(f"cuda:{index}" for index in range(count))
    gc.collect()
    torch.cuda.init()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(0)
    session = open_session(Case(variant=VariantId(variant), workload=workload, batch=BATCH, devices=devices, threads=1))
    for _ in range(STEPS_BEFORE):
        session.step()
    _synchronize(count)
    before = control.counts()
    session.step()
    _synchronize(count)
    calls = {name: number - before[name] for name, number in control.counts().items()}
    with PythonCalls() as python:
        session.step(python.enter)
    _synchronize(count)
    peak, reserved = torch.cuda.max_memory_allocated(0), torch.cuda.memory_reserved(0)
    return calls, sum(python.by_phase().values()), peak, reserved


def calls_of_a_hop(variant: str, workload: str) -> float:
    many, few = (calls_of(f"{variant[:-1]},{sizes}]", workload)[0] for sizes in SIZES)
    more = {name: many[name] - few[name] for name in many}
    return 2 * sum(more[name] for name in HOST_CALLS) / more["copies"]


def _synchronize(count: int) -> None:
    for index in range(count):
        torch.cuda.synchronize(index)


def main() -> None:
    (workload,) = sys.argv[1:] or ["mlp/small"]
    print(heading("tests.cuda_stand_in.graph_calls"))  # noqa: T201
    print(f"{torch.cuda.device_count()} devices, batch {BATCH}")  # noqa: T201
    for options in ("route=star", "graphs=true,route=star", "graphs=true,route=nccl"):
        variant = f"tuned[dispatch=sequence,{options}]"
        calls, python, peak, reserved = calls_of(variant, workload)
        parts = ", ".join(f"{name} {calls[name]:,}" for name in HOST_CALLS)
        total = sum(calls[name] for name in HOST_CALLS)
        memory = f"peak {peak:,} bytes, reserved {reserved:,}"
        hop = f"a bucket's hop {calls_of_a_hop(variant, workload):.1f}; " if "star" in options else ""
        print(f"{variant}: host calls {total:,} ({parts}); {hop}Python calls {python:,}; {memory}")  # noqa: T201


if __name__ == "__main__":
    main()
