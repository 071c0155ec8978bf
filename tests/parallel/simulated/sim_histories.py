"""`test_histories.py` against the stock wrapper itself, on devices with streams and memory."""

import random

import pytest
from torch import nn

from dpbench.parallel import DataParallel
from tests.parallel.histories import apply_in_sequence, assert_alike, play, random_policy
from tests.sampling import sampled

DEVICES = [f"sim:{i}" for i in range(4)]
HISTORIES, SAMPLE = 100, 4


class Stock(nn.DataParallel):
    def parallel_apply(self, replicas, inputs, kwargs):
        return apply_in_sequence(replicas, inputs)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("seed", sampled(range(HISTORIES), SAMPLE))
def test_a_history_equals_that_of_stock(seed):
    stock = list(play(seed, lambda model: Stock(model, [0, 1, 2, 3]), "sim:0"))
    policy = random_policy(random.Random(seed))
    assert_alike(stock, play(seed, lambda model: DataParallel(model, DEVICES, policy=policy), "sim:0"), f"{policy}")
