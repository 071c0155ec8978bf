"""The share of bytes that can be reduced when half of each lane's backward is done.

These bytes have every lane's gradient, at 8 equal buckets and one more. No scheme can be ahead of the gradients.

A layer's weight gradient needs the input gradients of all layers behind it. Of L equal layers w weight gradients cost
w + (w - 1) of the 2 L - 1 kernels. So at half of the kernels w <= (L + 1) / 2: 50 % of the bytes. It can be more if
most bytes are at the end, as in a ResNet, since backward begins there.
"""

from itertools import product

import pytest
import torch
from torch import nn

from dpbench.measure.counted.dependencies import dependencies
from dpbench.parallel import DataParallel, Policy
from dpbench.records.count_record import Phase
from dpbench.simulator import mark, recording
from dpbench.workloads.convnet import ConvnetSize, ResNet
from tests.sampling import sampled

DEVICES = [f"sim:{i}" for i in range(4)]
BUCKETS = 8


def overlap(base, inputs, dispatch):
    """Shares of the reduced bytes at half of backward: gradients ready; copies startable."""
    base.to("sim:0")
    bucket_bytes = -(-sum(p.nbytes for p in base.parameters()) // BUCKETS)
    policy = Policy(bucket_bytes=bucket_bytes, first_bucket_bytes=bucket_bytes, dispatch=dispatch)
    wrapper = DataParallel(base, DEVICES, policy=policy)
    for batch in inputs:
        base.zero_grad()
        with recording() as recorded:
            mark(Phase.FORWARD.value)
            loss = wrapper(batch.to("sim:0")).sum()
            mark(Phase.BACKWARD.value)
            loss.backward()
    sizes = dependencies(recorded, home=0)
    return sizes.ready_at_half_bytes / sizes.reduced_bytes, sizes.startable_at_half_bytes / sizes.reduced_bytes


@pytest.mark.parametrize(("dispatch", "batches"), sampled(product(["sequence", "threads"], [(8,), (6, 8)]), 2))
def test_over_70_percent_of_a_resnets_bytes_are_ready_at_half(dispatch, batches):
    resnet50 = ResNet(ConvnetSize(blocks=(3, 4, 6, 3), width=4, side=32, classes=16))
    ready, startable = overlap(resnet50, [torch.randn(batch, 3, 32, 32) for batch in batches], dispatch)
    assert min(ready, startable) >= 0.7


@pytest.mark.parametrize("dispatch", ["sequence", "threads"])
def test_half_of_the_bytes_of_equal_layers_but_for_a_bucket_are_ready_at_half(dispatch):
    layers = nn.Sequential(*[nn.Linear(16, 16) for _ in range(4 * BUCKETS)])
    ready, startable = overlap(layers, [torch.randn(16, 16)], dispatch)
    assert 0.5 - 1 / BUCKETS <= startable <= ready <= 0.5 + 1 / (8 * BUCKETS)
