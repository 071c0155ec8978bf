"""The messages and bytes of a step, compared with the stock wrapper on the same devices."""

from collections import Counter
from functools import partial

import pytest
import torch
from torch import nn

from dpbench.parallel import DataParallel, Policy, data_parallel
from dpbench.records.recording import Copy
from dpbench.simulator import recording

DEVICES = [f"sim:{i}" for i in range(4)]


def encoder(layers, width, feed):
    layer = nn.TransformerEncoderLayer(width, 2, feed, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


def traffic(wrap, make, is_training=True, steps=2):
    """Messages and bytes between devices in the last of some steps, by link."""
    torch.manual_seed(0)
    base = make().to("sim:0")
    model, x = wrap(base), torch.randn(4, 2, next(base.parameters()).shape[-1]).to("sim:0")
    optimizer = torch.optim.SGD([p for p in base.parameters() if p.requires_grad], lr=0.01) if is_training else None
    for _ in range(steps):
        with recording() as recorded:
            with torch.set_grad_enabled(is_training):
                out = model(x)
            if is_training:
                out.sum().backward()
                optimizer.step()
    copies = [e for e in recorded.events if isinstance(e, Copy)]
    messages = Counter((copy.source, copy.destination) for copy in copies)
    sizes = Counter()
    for copy in copies:
        sizes[copy.source, copy.destination] += copy.size_bytes
    return messages, sizes


def flat_bytes(*sizes):
    """The bytes of a flat with tensors of these bytes, each at a multiple of 256 bytes."""
    end = 0
    for size in sizes:
        end = -(-end // 256) * 256 + size
    return end


def gaps(make):
    """The most bytes of gaps between a model's tensors: 256 for each, in each direction."""
    return 2 * 256 * len(make().state_dict())


def tuned(**policy):
    return lambda base: DataParallel(base, DEVICES, policy=Policy(dispatch="sequence", **policy))


def called(**policy):
    return lambda base: partial(data_parallel, base, device_ids=DEVICES, policy=Policy(dispatch="sequence", **policy))


def stock(base):
    return torch.nn.DataParallel(base, [0, 1, 2, 3])


class Bag(nn.Module):
    """Sparse and dense gradients in one bucket."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 8)
        self.rows = nn.Embedding(20, 8, sparse=True)
        self.tail = nn.Linear(8, 8)

    def forward(self, x):
        return self.tail(self.rows((self.head(x).abs() * 7).long() % 20).mean(-2) + self.head(x))


MODELS = {
    "many small layers": lambda: encoder(8, 8, 16),
    "512 wide": lambda: encoder(2, 512, 2048),
    "sparse beside dense": Bag,
    "batch norm": lambda: nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(2), nn.Linear(8, 8), nn.BatchNorm1d(2)),
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_a_star_has_no_more_messages_or_bytes_than_stock_on_any_link(make):
    ours, our_bytes = traffic(tuned(route="star"), make, steps=1)
    theirs, their_bytes = traffic(stock, make, steps=1)
    for link in ours:
        assert ours[link] <= theirs[link], link
        assert our_bytes[link] <= their_bytes[link] + gaps(make), link


def test_at_most_a_tenth_of_one_message_per_tensor():
    make = lambda: encoder(4, 8, 16)  # noqa: E731
    ours, our_bytes = traffic(tuned(), make)
    single, single_bytes = traffic(tuned(coalesce=False), make)
    assert ours.total() * 10 <= single.total()
    assert our_bytes.keys() == single_bytes.keys()
    for link in ours:
        assert single_bytes[link] <= our_bytes[link] <= single_bytes[link] + gaps(make)


@pytest.mark.parametrize("bucket_bytes", [4_000, 1_000])
@pytest.mark.parametrize("wrap_with", [tuned, called])
def test_smaller_buckets_are_more_messages_of_no_more_bytes(wrap_with, bucket_bytes):
    make = lambda: encoder(2, 8, 16)  # noqa: E731
    few, few_bytes = traffic(wrap_with(), make)
    many, many_bytes = traffic(wrap_with(bucket_bytes=bucket_bytes), make)
    assert many.total() > few.total()
    for link in few:
        assert few_bytes[link] - gaps(make) <= many_bytes[link] <= few_bytes[link]


def parameter_bytes(wrap, make, is_training):
    """Bytes from the first device to the second, without the chunks of batch and gradient."""
    _, sizes = traffic(wrap, make, is_training)
    chunk = 4 * 2 * 8
    return sizes[0, 1] - chunk * (1 + is_training)


def frozen():
    base = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    base[0].requires_grad_(False)
    return base


def test_unchanged_parameters_are_not_sent_again():
    make = lambda: nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))  # noqa: E731
    assert parameter_bytes(tuned(skip_unchanged=True), make, is_training=False) == 0
    assert parameter_bytes(tuned(), make, is_training=False) == flat_bytes(256, 32, 256, 32)


def test_frozen_parameters_are_not_sent_again_in_training():
    assert parameter_bytes(tuned(skip_unchanged=True), frozen, is_training=True) == flat_bytes(256, 32)
    assert parameter_bytes(tuned(), frozen, is_training=True) == flat_bytes(256, 32, 256, 32)


def test_a_training_loop_allocates_nothing_new_and_keeps_its_memory_flat():
    base = encoder(1, 8, 16).to("sim:0")
    wrapper = tuned(bucket_bytes=2_000)(base)
    optimizer = torch.optim.SGD(base.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        wrapper(torch.randn(4, 2, 8)).sum().backward()
        optimizer.step()

    def memory(measure):
        return [measure(device) for device in range(4)]

    for _ in range(3):
        step()
    allocated, reserved = memory(torch.sim.memory_allocated), memory(torch.sim.memory_reserved)
    for _ in range(10):
        step()
    assert memory(torch.sim.memory_allocated) == allocated
    assert memory(torch.sim.memory_reserved) == reserved
