"""Histories: random actions on a model and its wrapper, and all that can be seen of them.

One history is played with two wrappers. Each is around its own model, drawn from the same seed. If the wrappers are
equivalent, all visible results are equal. The models' forwards are drawn too (`random_models.py`).
"""

import random
from dataclasses import dataclass
from itertools import zip_longest

import torch
from torch import nn
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves

from dpbench.parallel import Policy
from tests.parallel.random_actions import ACTIONS
from tests.parallel.random_models import WIDTH, Block, Log, Model

LENGTHS = (8, 16, 32)
BATCHES = (1, 2, 4, 5, 6, 9)


class World:
    """A model, its wrapper, and the outputs, hooks and values that an action has kept."""

    def __init__(self, seed, wrap, device):
        torch.manual_seed(seed)
        self.log, self.device, self.wrap = Log(), device, wrap
        self.model = Model(random.Random(seed), self.log).to(device)
        self.wrapper = wrap(self.model)
        self.held, self.handles, self.values = [], [], []

    @property
    def blocks(self):
        return [module for module in self.model.modules() if isinstance(module, Block)]

    def outputs(self, draw, forward=None):
        """The outputs of a forward on a random batch, which are compared later."""
        batch, seed = draw.choice(BATCHES), draw.randrange(1000)
        x = torch.randn(batch, WIDTH, generator=torch.Generator().manual_seed(seed)).double()
        outputs = tree_leaves((forward or self.wrapper)(x.to(self.device), torch.arange(batch).to(self.device)))
        self.values += outputs
        return outputs

    def state(self):
        """The base's facts, as strings, and its values, as tensors."""
        ordinary = vars(nn.Module()).keys()
        facts = [f"{name} {sorted(vars(module).keys() - ordinary)}" for name, module in self.model.named_modules()]
        values = [*self.model.parameters(), *self.model.buffers()]
        for name, parameter in self.model.named_parameters():
            facts.append(f"{name} {parameter.requires_grad} {parameter.is_leaf}")
            # Stock gives an unused weight a gradient of zeros.
            values.append(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.to_dense())
        return facts, values


@dataclass(frozen=True)
class Entry:
    """All that can be seen of one action."""

    action: str
    error: type[Exception] | None
    facts: list
    values: list


def play(seed, wrap, device):
    """The entries of the history of that seed, up to the first action that torch refuses.

    After a refusal two wrappers may differ, so nothing is compared.
    """
    world, draw = World(seed, wrap, device), random.Random(-seed)
    for action, number in [(draw.choice(ACTIONS), draw.random()) for _ in range(draw.choice(LENGTHS))]:
        error = None
        try:
            action(world, random.Random(number))
        except KeyError as planned:
            error = type(planned)
        except RuntimeError as refusal:
            yield Entry(action.__name__, type(refusal), [], [])
            return
        facts, values = world.state()
        noted, sums = world.log.take()
        seen = [value.detach().cpu().clone() for value in [*world.values, *values, *sums]]
        world.values.clear()
        yield Entry(action.__name__, error, [*noted, *facts], seen)


def assert_alike(stock, own, place):
    """Assert that two histories from `play` are equal; `place` names them in the message."""
    for number, (want, got) in enumerate(zip_longest(stock, own)):
        if want.error is not None and issubclass(want.error, RuntimeError):
            return  # torch refuses some things on stock's replicas that ours allow
        here = f"action {number}, {want.action}, {place}: "
        assert (got.action, got.error) == (want.action, want.error), here
        assert got.facts == want.facts, here
        assert_close(got.values, want.values, equal_nan=True, msg=here.__add__)


def random_policy(draw):
    return Policy(
        dispatch="sequence",
        cache_replicas=draw.random() < 0.8,
        coalesce=draw.random() < 0.8,
        bucket_bytes=draw.choice([1, 64, 200, 10**6]),
        first_bucket_bytes=draw.choice([1, 100, 10**6]),
        overlap_broadcast=draw.random() < 0.8,
        overlap_reduce=draw.random() < 0.8,
        overlap_copies=draw.random() < 0.8,
        host_staged=draw.random() < 0.2,
        route=draw.choice(["star", "chain"]),
    )


def apply_in_sequence(replicas, chunks, *_):
    """A `parallel_apply` for stock in a defined order of the replicas."""
    outputs, errors = [], []
    for replica, chunk in zip(replicas, chunks, strict=True):
        try:
            outputs.append(replica(*chunk))
        except KeyError as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return outputs
