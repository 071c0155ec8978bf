"""Scripts of ranks: every collective is seen, as a second way sees it, and what fails is one line."""

import json
from collections import Counter
from math import prod

import psutil
import pytest
import torch

from dpbench.analysis.communication import communication
from dpbench.jobs.count import count_scripts
from dpbench.records.script_record import Part, ScriptJob
from tests.old_torch import HIDES_OPERATIONS, needs_operations

START = """
import os, sys, time
import torch
from torch import distributed as dist, nn
from torch.distributed import _functional_collectives as functional
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
rank = dist.get_rank()
layers = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 3), nn.BatchNorm1d(3))
"""
STEPS = """
optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
for step in range(4):
    {}
    optimizer.step()
"""

EACH = {
    "all_reduce": ("dist.all_reduce(torch.ones(3))", 12),
    "all_gather": ("dist.all_gather([torch.ones(4), torch.ones(4)], torch.ones(4))", 32),
    "reduce_scatter": ("dist.reduce_scatter_tensor(torch.ones(4), torch.ones(8))", 32),
    "broadcast": ("dist.broadcast(torch.ones(4), src=0)", 16),
    "reduce": ("dist.reduce(torch.ones(4), dst=0)", 16),
    "gather": ("dist.gather(torch.ones(4), [torch.ones(4)] * 2 if rank == 0 else None)", 16),
    "scatter": ("dist.scatter(torch.ones(4), [torch.ones(4)] * 2 if rank == 0 else None)", 16),
    "all_to_all": ("dist.all_to_all_single(torch.ones(4), torch.ones(4))", 16),
    "barrier": ("dist.barrier()", 0),
    "all_gather_object": ("dist.all_gather_object([None] * 2, 1)", None),
    "broadcast_object_list": ("dist.broadcast_object_list([1])", None),
    "monitored": ("dist.monitored_barrier()", 0),
    "coalesced": (
        "torch.distributed._functional_collectives.all_gather_tensor(torch.ones(4), 0, dist.group.WORLD) + 1",
        32,
    ),
    "inference": ("with torch.inference_mode(): dist.all_reduce(torch.ones(4))", 16),
    "a thread": (
        "thread = __import__('threading').Thread(target=lambda: dist.all_reduce(torch.ones(4)));"
        " thread.start(); thread.join()",
        16,
    ),
}
NAMES = {"monitored": "barrier", "coalesced": "all_gather", "inference": "all_reduce", "a thread": "all_reduce"}

# The second way: torch's profiler sees gloo's own events, with the shapes of their tensors.
PROFILED = """
import json
from torch.profiler import ProfilerActivity, profile
model = DistributedDataParallel(layers, bucket_cap_mb=0.0002, find_unused_parameters=True)
optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
for step in range(5):
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiled:
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
    shapes = [[event.name, event.input_shapes] for event in profiled.events() if event.name.startswith("gloo:")]
    with open(f"profiled-{rank}.json", "w") as file:
        json.dump(shapes, file)
"""


def counted(tmp_path, *texts, timeout_s=60.0):
    jobs = []
    for number, text in enumerate(texts):
        path = tmp_path / f"script{number}.py"
        path.write_text(text)
        jobs.append(ScriptJob(script=path.name, steps=1000, folder=str(tmp_path)))
    return count_scripts(jobs, timeout_s=timeout_s)


@needs_operations
def test_each_kind_of_collective_is_counted_with_its_bytes_and_its_line(tmp_path):
    texts = [START + STEPS.format(call) for call, _ in EACH.values()]
    for (name, (_, size)), record, text in zip(EACH.items(), counted(tmp_path, *texts), texts, strict=True):
        assert record.reason is None, name
        issues = [issue for issue in communication(record.ranks).step if issue.part is Part.OTHER]
        assert {issue.kind for issue in issues} == {NAMES.get(name, name)}
        assert size is None or [(issue.count, issue.size_bytes) for issue in issues] == [(1, size)]
        assert {text.splitlines()[issue.place.line - 1].strip() for issue in issues} == {EACH[name][0]}


@needs_operations
def test_the_profiler_sees_the_same_collectives_of_ddp(tmp_path):
    (record,) = counted(tmp_path, START + PROFILED)
    assert record.reason is None
    for rank, issued in enumerate(record.ranks):
        events = json.loads((tmp_path / f"profiled-{rank}.json").read_text())
        last = issued.steps[-1]
        assert len(events) > 4  # buckets, buffers, and the map of what is used
        assert {issue.what.count("exposed") + issue.is_unaligned for issue in issued.setup} == {0}
        assert sorted((name, prod(shapes[0])) for name, shapes in events) == sorted(
            (f"gloo:{issue.kind}", issue.size_bytes // getattr(torch, issue.dtypes).itemsize)
            for issue in last
            for _ in range(issue.count)
        )


HOOKED = """
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
def of_user(_, bucket):
    small = bucket.buffer().half()
    again = lambda _: dist.all_reduce(small, async_op=True).get_future().wait()[0]
    return dist.all_reduce(small, async_op=True).get_future().then(again).then(lambda sent: sent.value().float())
layers = nn.Sequential(*[nn.Linear(32, 32) for _ in range(4)])
model = DistributedDataParallel(layers, bucket_cap_mb=0.004)
HOOK
optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
for step in range(6):
    model(torch.ones(4, 32)).sum().backward()
    optimizer.step()
"""
HOOKS = (
    "pass",
    "model.register_comm_hook(None, default_hooks.fp16_compress_hook)",
    "model.register_comm_hook(None, of_user)",
    "model.register_comm_hook(powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2), powerSGD_hook.powerSGD_hook)",
)


@needs_operations
def test_the_buckets_of_a_hook_are_as_exposed_as_those_without_and_equal_in_each_count(tmp_path):
    texts = [START + HOOKED.replace("HOOK\n", f"{hook}\n") for hook in HOOKS]
    records = counted(tmp_path, *(text for text in texts for _ in range(3)))
    assert [record.reason for record in records if record.reason] == []
    sent_by_record = [
        [(i.is_exposed, i.count, i.size_bytes, i.place.line) for i in communication(record.ranks).step]
        for record in records
    ]
    for first in range(0, len(sent_by_record), 3):
        assert sent_by_record[first] == sent_by_record[first + 1] == sent_by_record[first + 2]
    plain, fp16, of_user, power = sent_by_record[::3]
    assert [count for exposed, count, _, _ in plain if not exposed] == [3]
    halves = {(exposed, count, size // 2) for exposed, count, size, _ in plain}
    assert {issue[:3] for issue in fp16} == halves
    sent: Counter[tuple[bool, int]] = Counter()
    for exposed, count, size, _ in of_user:
        sent[exposed, size] += count
    assert sent == {(exposed, size): 2 * count for exposed, count, size in halves}
    assert sum(count for exposed, count, _, _ in power if exposed) == 3  # the last bucket sends one after another
    lines = texts[0].splitlines()
    assert {lines[line - 1].strip() for _, _, _, line in power} == {"model(torch.ones(4, 32)).sum().backward()"}


@needs_operations
def test_counting_changes_no_result(tmp_path):
    compute = START + (
        "torch.manual_seed(rank)\nmodel = DistributedDataParallel(layers)\n"
        "optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)\n"
        "for _ in range(3):\n    model(torch.randn(4, 8)).sum().backward()\n    optimizer.step()\n"
        "first = next(layers.parameters()).detach().clone()\nother = first.clone()\ndist.broadcast(other, src=0)\n"
        "assert torch.equal(first, other)\n"
    )
    assert counted(tmp_path, compute)[0].reason is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "if rank == 1: raise ValueError('no data')\ndist.barrier()",
            "rank 1: ValueError: no data at script0.py, line 10",
        ),
        ("if rank == 1: os._exit(5)\ndist.barrier()", "rank 1: ended with exit status 5"),
        ("if rank == 0: os.kill(os.getpid(), 11)\ndist.barrier()", "rank 0: killed by SIGSEGV"),
        ("sys.exit(7)", ": SystemExit: exit status 7 at script0.py, line 10"),
        ("pass", "rank 0 ended after 0 steps of an optimizer; allowed: 3 or more"),
        (STEPS.format("if rank and step == 3: sys.exit()\n    dist.barrier()"), "; rank 1 had ended after 3 steps"),
        (
            "if rank == 0: dist.barrier()\ntime.sleep(1000)",
            "rank 0 is at script0.py, line 10, rank 1 is at script0.py, ",
        ),
        pytest.param(
            "dist.all_reduce(torch.ones(1))",
            "hides the operation of a reduction; torch 2.10 or newer is needed at script0.py, line 10",
            marks=pytest.mark.skipif(not HIDES_OPERATIONS, reason="torch 2.10 and newer show it"),
        ),
    ],
)
def test_what_fails_is_one_line_and_no_process_is_left(tmp_path, text, reason):
    before = psutil.Process().children(recursive=True)  # other tests may have left a server of multiprocessing
    (record,) = counted(tmp_path, START + text, timeout_s=5.0 if "sleep" in text else 60.0)
    assert reason in record.reason
    assert "\n" not in record.reason
    assert psutil.Process().children(recursive=True) == before
