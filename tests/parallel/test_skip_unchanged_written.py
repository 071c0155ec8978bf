"""``Policy(skip_unchanged=True)``: a replica's changes to its weights do not stay."""

import pytest
import torch
from torch import nn

from tests.parallel.models import Call
from tests.parallel.test_skip_unchanged import LANES, wrap


def test_a_replicas_write_to_its_weights_does_not_stay():
    def forward(self, x):
        out = x * self.weight
        if self.weight is not base.weight:
            with torch.no_grad():
                self.weight.mul_(3)
        return out

    base = Call(forward, weight=nn.Parameter(torch.ones(1)))
    wrapper = wrap(base)
    for _ in range(3):
        with torch.no_grad():
            assert wrapper(torch.ones(LANES)).tolist() == [1] * LANES


class Marked(torch.Tensor):
    pass


ON_A_WEIGHT = {
    "other data": lambda weight: setattr(weight, "data", torch.full_like(weight, 7)),
    "swapped": lambda weight: torch.utils.swap_tensors(weight, torch.full_like(weight, 7)),
    "class": lambda weight: setattr(weight, "__class__", Marked),
}


@pytest.mark.parametrize("is_training", [True, False], ids=["training", "inference"])
@pytest.mark.parametrize("touch", ON_A_WEIGHT.values(), ids=ON_A_WEIGHT)
def test_changes_to_a_replicas_weights_are_gone_in_the_next_forward(touch, is_training, sent):
    """Also if the replica changes them in the forward for which they were sent."""

    def forward(self, x):
        seen.append((type(self.weight), self.weight.tolist()))
        out = x * self.weight
        if self.weight is not base.weight and len(seen) <= LANES:
            touch(self.weight)
        return out

    seen = []
    base = Call(forward, weight=nn.Parameter(torch.ones(1)))
    wrapper = wrap(base)
    with torch.set_grad_enabled(is_training):
        for _ in range(3):
            wrapper(torch.ones(LANES))
    assert seen[LANES + 1 : 2 * LANES] == seen[2 * LANES + 1 :] == [(torch.Tensor, [1.0])] * (LANES - 1)
    assert sent() == LANES - 1


def test_a_later_replicas_write_to_weights_of_an_older_graph_is_an_error():
    def forward(self, x):
        out = x * self.weight.square()
        if self.is_writing and self.weight is not base.weight:
            with torch.no_grad():
                self.weight.mul_(3)
        return out

    base = Call(forward, weight=nn.Parameter(torch.ones(1)), is_writing=False)
    wrapper = wrap(base)
    out = wrapper(torch.ones(LANES, requires_grad=True))
    base.is_writing = True
    with torch.no_grad():
        wrapper(torch.ones(LANES))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
    base.is_writing = False
    assert wrapper(torch.ones(LANES)).tolist() == [1] * LANES


def test_weights_that_are_not_sent_again_are_new_tensors_too(sent):
    def forward(self, x):
        if self.weight is not base.weight:
            seen.append(hasattr(self.weight, "mark"))
            self.weight.mark = True
        return x * self.weight

    seen = []
    base = Call(forward, weight=nn.Parameter(torch.ones(1)))
    wrapper = wrap(base)
    for _ in range(2):
        with torch.no_grad():
            wrapper(torch.ones(LANES))
    assert sent() == LANES - 1
    assert seen == [False] * 2 * (LANES - 1)


def test_weights_that_a_replica_has_written_are_sent_once_more(sent):
    def forward(self, x):
        if self.is_writing and self.weight is not base.weight:
            self.weight.mul_(3)
        return x * self.weight

    base = Call(forward, weight=nn.Parameter(torch.ones(1)), is_writing=True)
    wrapper = wrap(base)
    with torch.no_grad():
        for base.is_writing in (True, False, False):
            wrapper(torch.ones(LANES))
    assert sent() == 2 * (LANES - 1)
