"""The loss in the replicas: the same loss and gradients as outside, and outputs that stay where they are."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from dpbench.parallel import DataParallel, with_loss

CPU4 = ["cpu"] * 4


def classifier(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 5)).double()


def batch(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(count)
    return torch.randn(count, 6, dtype=torch.float64, generator=generator), torch.randint(
        5, (count,), generator=generator
    )


def gradients(module: nn.Module) -> list[torch.Tensor]:
    return [parameter.grad for parameter in module.parameters()]


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("count", [16, 13, 5, 3, 1])
def test_the_mean_is_that_of_the_batch_also_with_uneven_chunks(count, reduction):
    plain, x_y = classifier(), batch(count)
    lanes = copy.deepcopy(plain)
    expected = functional.cross_entropy(plain(x_y[0]), x_y[1])
    expected.backward()
    criterion = nn.CrossEntropyLoss(reduction=reduction)
    losses = DataParallel(with_loss(lanes, criterion), CPU4)(*x_y)
    assert losses.shape == (count,)
    losses.mean().backward()
    torch.testing.assert_close(losses.mean(), expected)
    torch.testing.assert_close(gradients(lanes), gradients(plain))


def test_without_a_wrapper_it_is_the_loss_too():
    plain, x_y = classifier(), batch(8)
    losses = with_loss(plain, functional.cross_entropy)(*x_y)
    torch.testing.assert_close(losses.mean(), functional.cross_entropy(plain(x_y[0]), x_y[1]))


def test_it_adds_no_parameter_and_shares_those_of_the_model():
    plain = classifier()
    wrapped = with_loss(plain, functional.cross_entropy)
    assert [name for name, _ in wrapped.named_parameters()] == [
        f"module.{name}" for name, _ in plain.named_parameters()
    ]
    assert all(a is b for a, b in zip(wrapped.parameters(), plain.parameters(), strict=True))


def test_a_loss_with_parameters_trains_them():
    class Weighted(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones((), dtype=torch.float64))

        def forward(self, output, target):
            return self.scale * functional.cross_entropy(output, target)

    criterion = Weighted()
    DataParallel(with_loss(classifier(), criterion), CPU4)(*batch(12)).mean().backward()
    assert criterion.scale.grad is not None
    assert criterion.scale.grad != 0


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda output, target: output, "shape (8, 5)"),
        (lambda output, target: 1.0, "a float"),
        (lambda output, target: target.sum(), "torch.int64"),
        (lambda output, target: output[:3, 0], "shape (3,)"),
    ],
)
def test_a_loss_of_another_shape_is_one_clear_error(loss, words):
    with pytest.raises(ValueError, match="with_loss: loss") as raised:
        with_loss(classifier(), loss)(*batch(8))
    assert words in str(raised.value)
    with pytest.raises(ValueError, match="with_loss: loss"):
        DataParallel(with_loss(classifier(), loss), ["cpu"] * 2)(*batch(16))


@pytest.mark.parametrize("arguments", [(), (torch.ones(()),), (3,)])
def test_without_a_target_it_is_one_clear_error(arguments):
    with pytest.raises(ValueError, match="must be the target"):
        with_loss(classifier(), functional.cross_entropy)(*arguments)


def test_after_a_wrong_loss_the_next_step_is_right():
    plain = classifier()
    model = DataParallel(with_loss(plain, functional.cross_entropy), CPU4)
    with pytest.raises(ValueError, match="must be the target"):
        model(3)
    model(*batch(9)).mean().backward()
    expected = copy.deepcopy(plain)
    expected.zero_grad()
    functional.cross_entropy(expected(batch(9)[0]), batch(9)[1]).backward()
    torch.testing.assert_close(gradients(plain), gradients(expected))
