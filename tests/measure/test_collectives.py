"""The time of collectives, and the part that is hidden."""

from types import SimpleNamespace

import pytest

from dpbench.measure.ranks import collectives
from dpbench.measure.ranks.collectives import overlap


def event(name, begin, end, thread=1, device="CPU"):
    return SimpleNamespace(
        name=name,
        thread=thread,
        time_range=SimpleNamespace(start=begin, end=end),
        device_type=SimpleNamespace(name=device),
    )


@pytest.mark.parametrize(
    ("sent", "computed", "expected"),
    [
        ([], [(0, 5)], (0, 0)),
        ([(2, 6)], [], (4, 0)),
        ([(2, 6)], [(0, 10)], (4, 4)),
        ([(2, 6)], [(0, 3), (5, 9)], (4, 2)),
        ([(2, 6), (4, 8)], [(7, 9)], (6, 1)),  # two at once count once
        ([(4, 8), (2, 6)], [(3, 5), (3, 7), (0, 1)], (6, 4)),  # an operator inside another counts once
        ([(0, 2), (4, 6)], [(1, 5)], (4, 2)),  # one operator over two collectives
        ([(0, 2)], [(2, 4)], (2, 0)),
    ],
)
def test_hidden_is_the_time_that_collectives_and_operators_share(sent, computed, expected):
    assert overlap(sent, computed) == expected


def test_on_the_cpu_operators_of_gloos_threads_hide_nothing():
    events = [
        event("gloo:all_reduce", 10, 20, thread=2),
        event("aten::copy_", 12, 14, thread=2),
        event("aten::mm", 15, 30),
        event("autograd::engine::evaluate_function: MmBackward0", 0, 40),
        event("c10d::allreduce_", 9, 19),
    ]
    assert overlap(*collectives._spans_on_cpu(events)) == (10, 5)


def test_on_gpus_kernels_count_and_calls_of_the_host_do_not():
    events = [
        event("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 10, 20, device="CUDA"),
        event("sgemm", 18, 30, device="CUDA"),
        event("aten::mm", 0, 40),
        event("nccl:all_reduce", 0, 40),
    ]
    assert overlap(*collectives._spans_on_gpu(events)) == (10, 2)
