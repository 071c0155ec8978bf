"""Variants of a user: right, wrong, and those that fail."""

import os

import torch
from torch import nn

import dpbench


def halves(model, devices, scale=1):
    """Run the plain model on each chunk. Another scale than 1 is another computation."""

    def forward(*inputs):
        chunks = zip(*(x.chunk(len(devices)) for x in inputs), strict=True)
        return scale * torch.cat([model(*chunk) for chunk in chunks])

    return forward


class Class(nn.Module):
    def __init__(self, module, device_ids):
        super().__init__()
        self.module, self.device = module, device_ids[0]

    def forward(self, *inputs):
        return self.module(*(x.to(self.device) for x in inputs))


@dpbench.variant(per_rank=True)
def ranks(model, devices):
    (device,) = devices
    assert device.type == "cpu"
    assert int(os.environ["RANK"]) == int(os.environ["LOCAL_RANK"]) < int(os.environ["WORLD_SIZE"])
    return nn.parallel.DistributedDataParallel(model)


def takes(model, devices):
    """Move the weight away, as wrappers do that flatten weights."""
    del model.weight
    return model


def nothing(model, devices):
    return 3


def raises(model, devices):
    raise RuntimeError("no\nway")


number = 3
