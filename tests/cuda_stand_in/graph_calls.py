"""What the host does in a training step, eagerly and by graphs, on the stand-in's devices.

    DPBENCH_CUDA_DEVICES=8 .venv-cuda/bin/python -m tests.cuda_stand_in.graph_calls [WORKLOAD]

`host calls` are those between devices' work: kernels and copies that are launched, launches of graphs, events, waits.
Python calls are those of the calling thread; those of the engine's threads in backward are not counted.
"""

import sys

import torch

from benchmarks.about import heading
from dpbench.cases.case import Case
from dpbench.cases.variants import VariantId
from dpbench.measure.python_calls import PythonCalls
from dpbench.measure.session import open_session
from tests.cuda_stand_in import control

BATCH = 64
STEPS_BEFORE = 5
HOST_CALLS = ("works", "graph_launches", "events_recorded", "waits")


def calls_of(variant: str, workload: str) -> tuple[dict[str, int], int, int]:
    """Return the host's calls of a step by kind, its Python calls, and the bytes reserved on device 0."""
    count = torch.cuda.device_count()
    devices = tuple(f"cuda:{index}" for index in range(count))
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
    return calls, sum(python.by_phase().values()), torch.cuda.memory_reserved(0)


def _synchronize(count: int) -> None:
    for index in range(count):
        torch.cuda.synchronize(index)


def main() -> None:
    (workload,) = sys.argv[1:] or ["mlp/small"]
    print(heading("tests.cuda_stand_in.graph_calls"))  # noqa: T201
    print(f"{torch.cuda.device_count()} devices, batch {BATCH}")  # noqa: T201
    for variant in ("tuned[dispatch=sequence,route=star]", "tuned[dispatch=sequence,graphs=true,route=star]"):
        calls, python, reserved = calls_of(variant, workload)
        parts = ", ".join(f"{name} {calls[name]:,}" for name in HOST_CALLS)
        total = sum(calls[name] for name in HOST_CALLS)
        print(f"{variant}: host calls {total:,} ({parts}); Python calls {python:,}; reserved {reserved:,} bytes")  # noqa: T201


if __name__ == "__main__":
    main()
