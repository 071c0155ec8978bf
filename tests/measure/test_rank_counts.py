"""The operators and collectives that a rank dispatches."""

import pytest
import torch

from dpbench.measure.ranks.rank_counts import RankCounts, sum_over_ranks
from dpbench.records.count_record import Phase, PhaseCounts, Traffic


def test_operators_and_flops_are_counted_by_phase_in_the_backward_too():
    a = torch.ones(2, 3, requires_grad=True)
    b = torch.ones(3, 4)
    with RankCounts() as counter:
        counter.enter(Phase.FORWARD)
        c = (a @ b).sum()
        counter.enter(Phase.BACKWARD)
        c.backward()
    counts = counter.by_phase()
    assert (counts[Phase.FORWARD].operators, counts[Phase.FORWARD].flops) == (2, 2 * 2 * 3 * 4)
    assert counts[Phase.BACKWARD].flops == 2 * 2 * 4 * 3
    assert counts[Phase.FORWARD].collectives == {}
    assert counts[Phase.FORWARD].copies is None


def rank(operators, size_bytes):
    traffic = {"allreduce": Traffic(count=1, size_bytes=size_bytes)}
    return {Phase.BACKWARD: PhaseCounts(operators=operators, flops=1, collectives=traffic)}


def test_operators_of_all_ranks_are_summed_and_a_collective_counts_once():
    total = sum_over_ranks([rank(3, 64), rank(4, 64)]).phases[Phase.BACKWARD]
    assert (total.operators, total.flops) == (7, 2)
    assert total.collectives == {"allreduce": Traffic(count=1, size_bytes=64)}


def test_ranks_with_different_collectives_raise():
    with pytest.raises(RuntimeError, match="collectives differ in backward"):
        sum_over_ranks([rank(3, 64), rank(3, 32)])
