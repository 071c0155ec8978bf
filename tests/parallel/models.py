"""Small modules, each for one property."""

import torch
from torch import nn


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))


def normed() -> nn.Sequential:
    return nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))


class Call(nn.Module):
    """Its forward calls a function, with the module itself as the first argument."""

    def __init__(self, function, **members):
        super().__init__()
        self.function = function
        for name, member in members.items():
            setattr(self, name, member)

    def forward(self, *args, **kwargs):
        return self.function(self, *args, **kwargs)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 4)
        self.head = nn.Linear(4, 11, bias=False)
        self.head.weight = self.embedding.weight

    def _apply(self, *args, **kwargs):
        super()._apply(*args, **kwargs)  # gives each module its own parameter on simulated devices
        self.head.weight = self.embedding.weight
        return self

    def forward(self, tokens):
        return self.head(torch.tanh(self.embedding(tokens)))
