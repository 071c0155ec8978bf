"""The cost of copying weights to each lane and adding up gradients, without a scheme.

`floor` runs all chunks on one copy of the weights, which stays in the CPU's cache. A data-parallel scheme needs a copy
for each lane.
"""

import copy
import time

import pytest
import torch

from benchmarks.pytest_suite.interleave import interleave, paired_ratio
from dpbench.cases.case import Case
from dpbench.cases.variants import VariantName as V
from dpbench.measure.sample import settle
from dpbench.measure.session import open_session

LANES = 4
ROUNDS = 300


def session(variant):
    case = Case(variant=variant, workload="mlp/small", batch=64, devices=["cpu"] * LANES, threads=LANES)
    return open_session(case)


def own_copies_step():
    """The step of `floor` with a copy of the weights for each chunk, made by one call before each step."""
    floor = session(V.FLOOR)
    copies = [floor.base, *(copy.deepcopy(floor.base) for _ in range(LANES - 1))]
    floor.scheme.parallel_apply = lambda chunks: [c(*chunk) for c, chunk in zip(copies, chunks, strict=True)]
    weights, *others = [list(c.parameters()) for c in copies]

    def copy_weights(*_):
        for of_lane in others:
            for parameter in of_lane:
                parameter.grad = None
            with torch.no_grad():
                torch._foreach_copy_(of_lane, weights)

    def add_gradients(*_):
        for of_lane in others:
            torch._foreach_add_([p.grad for p in weights], [p.grad for p in of_lane])

    floor.optimizer.register_step_pre_hook(add_gradients)
    floor.optimizer.register_step_post_hook(copy_weights)
    return floor.step


@pytest.mark.usefixtures("one_thread")
def test_own_copies(print_row, share):
    rounds = share(ROUNDS)
    tuned = session(V.TUNED)
    settle(tuned.step, tuned.trials_left)
    steps = {"tuned": tuned.step, "floor": session(V.FLOOR).step, "own copies": own_copies_step()}
    times_s = interleave(steps, time.perf_counter, rounds, warmup_rounds=30, seed=0)
    for name, reference in (("own copies", "floor"), ("tuned", "own copies"), ("tuned", "floor")):
        ratio = paired_ratio(times_s[name], times_s[reference])
        print_row(
            f"{f'{name} / {reference}':31} {ratio.value:7.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"
            f"  mlp/small, batch 64, {LANES} CPU lanes, 1 intra-op thread, {ratio.rounds} rounds"
        )
    assert all(len(samples_s) == rounds for samples_s in times_s.values())
