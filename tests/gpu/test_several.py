"""The wrapper on several GPUs, by each route and dispatch: the numbers are stock's, and no wait is missing."""

import copy
import random

import pytest
import torch
from torch import nn

from dpbench.parallel import DataParallel, Policy
from tests.gpu.device import lagging, skip_without_gpu
from tests.parallel.histories import apply_in_sequence, assert_alike, play, random_policy
from tests.parallel.models import Call, Tied, mlp, normed
from tests.parallel.oracle import assert_grads, assert_same_step
from tests.sampling import sampled

pytestmark = pytest.mark.gpu
skip_without_gpu()
COUNT = torch.cuda.device_count()
if COUNT < 2:
    pytest.skip(f"lanes apart need 2 GPUs, and there are {COUNT}", allow_module_level=True)
DEVICES = [f"cuda:{i}" for i in range(COUNT)]
HISTORIES, SAMPLE = 100, 15
POLICIES = {
    "default": {},
    "threads": {"dispatch": "threads"},
    "star": {"route": "star", "bucket_bytes": 200, "first_bucket_bytes": 64},
    "chain": {"route": "chain", "bucket_bytes": 200, "first_bucket_bytes": 64},
    "small buckets": {"bucket_bytes": 200, "first_bucket_bytes": 64},
    "no overlap": {"overlap_broadcast": False, "overlap_reduce": False, "overlap_copies": False},
    "one tensor a bucket": {"coalesce": False},
    "skip unchanged": {"skip_unchanged": True},
    "nothing cached": {"cache_replicas": False},
    "host staged": {"host_staged": True},
    "by NCCL": {"route": "nccl", "bucket_bytes": 200, "first_bucket_bytes": 64},
    "by NCCL, no overlap": {"route": "nccl", "overlap_broadcast": False, "overlap_reduce": False},
}
MODELS = {
    "mlp": (mlp, lambda n: torch.randn(n, 5)),
    "batch norm": (normed, lambda n: torch.randn(n, 5)),
    "tied": (Tied, lambda n: torch.randint(11, (n, 3))),
    "recurrent": (
        lambda: Call(lambda self, x: self.rnn(x)[0], rnn=nn.LSTM(5, 4, batch_first=True)),
        lambda n: torch.randn(n, 6, 5),
    ),
    "convolution": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), lambda n: torch.randn(n, 3, 6, 6)),
}


def wrap(base, **policy):
    return DataParallel(base, DEVICES, policy=Policy(**{"dispatch": "sequence", **policy}))


def here(tensor):
    return tensor.to("cuda:0", torch.float64 if tensor.is_floating_point() else None)


@pytest.fixture(params=["none", "first", "last", "all"])
def lags(request):
    """Devices that are slowed, so that everything that should wait for them has to wait."""
    slow = {"none": [], "first": [0], "last": [COUNT - 1], "all": range(COUNT)}[request.param]
    with lagging(slow):
        yield


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", MODELS)
def test_a_step_equals_the_plain_modules(name, policy):
    make, draw = MODELS[name]
    assert_same_step(
        lambda: make().double().to("cuda:0"), lambda base: wrap(base, **POLICIES[policy]), here(draw(16)), lanes=COUNT
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_a_lag_changes_no_number(policy, lags):
    base = normed().double().to("cuda:0")
    expected, x = copy.deepcopy(base), [here(torch.randn(16, 5)) for _ in range(3)]
    wrapper, stock = wrap(base, **POLICIES[policy]), nn.DataParallel(expected, list(range(COUNT)))
    ours, theirs = (torch.optim.SGD(module.parameters(), lr=0.05) for module in (base, expected))
    for batch in x:
        for module, optimizer in ((wrapper, ours), (stock, theirs)):
            optimizer.zero_grad()
            module(batch).square().sum().backward()
            optimizer.step()
    assert_grads(base, {name: parameter.grad for name, parameter in expected.named_parameters()})
    torch.testing.assert_close(base.state_dict(), expected.state_dict())


class Stock(nn.DataParallel):
    def parallel_apply(self, replicas, inputs, kwargs):
        return apply_in_sequence(replicas, inputs)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("seed", sampled(range(HISTORIES), SAMPLE))
def test_a_history_equals_that_of_the_stock_wrapper(seed):
    stock = list(play(seed, lambda model: Stock(model, list(range(COUNT))), "cuda:0"))
    policy = random_policy(random.Random(seed))
    assert_alike(stock, play(seed, lambda model: DataParallel(model, DEVICES, policy=policy), "cuda:0"), f"{policy}")


@pytest.mark.parametrize("attempt", range(4))
def test_gradients_of_nested_backwards_of_one_weight_keep_their_memory(attempt):
    """History 60: a checkpoint's backward gives a gradient to a weight while the outer one's still waits its turn."""
    policy = random_policy(random.Random(60))
    with lagging([0]):
        for entry in play(60, lambda model: DataParallel(model, DEVICES, policy=policy), "cuda:0"):
            if entry.action == "train":
                assert entry.error is None
