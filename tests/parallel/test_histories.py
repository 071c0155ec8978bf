"""Random histories of a model: the wrapper gives the results of the stock algorithm."""

import random
from dataclasses import replace

import pytest
import torch
from torch import nn

from dpbench.parallel import DataParallel, Policy
from dpbench.parallel.scatter_gather import chunk_sizes
from dpbench.variants.naive import Naive
from tests.parallel.histories import apply_in_sequence, assert_alike, play, random_policy
from tests.parallel.remote import take_remote_paths
from tests.sampling import sampled

LANES = 3
HISTORIES, SAMPLE = 200, 10


class Stock(nn.Module):
    """The stock algorithm, one replica after the other."""

    def __init__(self, module, shares=None):
        super().__init__()
        self.module, self.shares = module, shares

    def forward(self, *inputs):
        naive = Naive(self.module, [torch.device("cpu")] * LANES)
        naive.parallel_apply = apply_in_sequence
        if self.shares is not None:
            chunks = [x.split(chunk_sizes(len(x), LANES, self.shares)) for x in inputs]
            naive.scatter = lambda *_: list(zip(*chunks, strict=True))
        return naive(*inputs)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("seed", sampled(range(HISTORIES), SAMPLE))
def test_a_history_equals_that_of_the_stock_algorithm(seed, monkeypatch):
    stock = list(play(seed, Stock, "cpu"))
    for lanes in ("one device", "as if on several"):
        if lanes == "as if on several":
            take_remote_paths(monkeypatch)
        for policy in (Policy(dispatch="sequence"), random_policy(random.Random(seed))):
            own = play(seed, lambda model, policy=policy: DataParallel(model, ["cpu"] * LANES, policy=policy), "cpu")
            assert_alike(stock, own, f"history {seed}, {lanes}, {policy}")


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("seed", sampled(range(HISTORIES), SAMPLE))
def test_a_history_with_uneven_chunks_equals_that_of_the_stock_algorithm_on_them(seed):
    draw = random.Random(seed)
    policy = replace(random_policy(draw), shares=draw.choice([(1, 2, 1), (3, 1, 2), (1, 4, 0), (1, 1, 9), (2, 0, 0)]))
    stock = play(seed, lambda model: Stock(model, policy.shares), "cpu")
    own = play(seed, lambda model: DataParallel(model, ["cpu"] * LANES, policy=policy), "cpu")
    assert_alike(stock, own, f"history {seed}, {policy}")
