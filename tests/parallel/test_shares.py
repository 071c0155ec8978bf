"""`Policy.shares`: chunk sizes, and steps with uneven chunks."""

import copy
import math
from functools import partial
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from dpbench.parallel import (
    DataParallel,
    Policy,
    chunk_weights,
    data_parallel,
    gather,
    scatter,
    scatter_kwargs,
    with_loss,
)
from dpbench.parallel.scatter_gather import chunk_sizes
from tests.parallel.models import Call, mlp, normed
from tests.parallel.oracle import Chunked, assert_grads
from tests.parallel.remote import take_remote_paths

CPU4 = ["cpu"] * 4
UNEVEN = (1, 3, 2, 2)
positive = st.floats(1e-300, 1e300) | st.integers(1, 9).map(float)


@st.composite
def shares_with_zeros(draw):
    used = draw(st.lists(positive, min_size=1, max_size=9))
    return (*used, *[0.0] * draw(st.integers(0, 3)))


@given(batch=st.integers(0, 500), shares=shares_with_zeros())
def test_sizes_sum_to_the_batch_and_only_lanes_at_the_end_get_nothing(batch, shares):
    sizes = chunk_sizes(batch, len(shares), shares)
    used = [share for share in shares if share]
    assert sum(sizes) == batch
    if batch:
        assert min(sizes) >= 1
        assert len(sizes) <= min(batch, len(used))
        assert len(sizes) == min(batch, len(used)) or min(used) == max(used)
    else:
        assert sizes == (0,) * len(used)


@given(batch=st.integers(0, 500), lanes=st.integers(1, 9), share=positive)
def test_equal_shares_give_the_chunks_of_torch_chunk(batch, lanes, share):
    stock = tuple(len(chunk) for chunk in torch.empty(batch).chunk(lanes))
    assert chunk_sizes(batch, lanes, (share,) * lanes) == stock
    assert chunk_sizes(batch, lanes) == stock
    assert chunk_sizes(batch, lanes + 2, (*(share,) * lanes, 0.0, 0.0)) == stock


@given(batch=st.integers(1, 500), shares=st.lists(st.integers(1, 20), min_size=1, max_size=9).map(tuple))
def test_a_size_is_the_exact_part_rounded_up_or_down_unless_it_is_one(batch, shares):
    exact = [batch * share / sum(shares) for share in shares]
    if min(exact) >= 1 and min(shares) != max(shares):
        sizes = chunk_sizes(batch, len(shares), shares)
        assert all(abs(size - part) < 1 for size, part in zip(sizes, exact, strict=True))
    sizes = chunk_sizes(batch, len(shares), shares)
    if min(shares) != max(shares):
        in_order = sorted(zip(shares, sizes, strict=False))
        assert all(one <= other or a == b for (a, one), (b, other) in pairwise(in_order))


@given(batch=st.integers(1, 100), shares=st.lists(st.integers(1, 20), min_size=1, max_size=6), factor=st.integers(1, 9))
def test_only_the_ratios_of_shares_matter(batch, shares, factor):
    larger = tuple(share * factor for share in shares)
    assert chunk_sizes(batch, len(shares), larger) == chunk_sizes(batch, len(shares), tuple(shares))


@pytest.mark.parametrize(
    ("batch", "shares", "sizes"),
    [
        (10, (1, 2, 1), (3, 5, 2)),  # the first of two equal remainders
        (8, (1, 3), (2, 6)),
        (8, (1, 1e-9, 1), (4, 1, 3)),  # an inner lane keeps one item
        (3, (1, 2, 3, 4), (1, 1, 1)),
        (2, (5, 1, 1), (1, 1)),
        (1, (1, 9), (1,)),
        (9, (2, 1, 0), (6, 3)),
        (9, (1, 1, 0), (5, 4)),
        (9, (1, 0, 0), (9,)),
        (6, (1e-9, 1e-9, 1, 1), (1, 1, 2, 2)),
        (4, (0.01, 1, 1.2, 1), (1, 1, 1, 1)),
    ],
)
def test_sizes(batch, shares, sizes):
    assert chunk_sizes(batch, len(shares), shares) == sizes
    chunks = scatter(torch.arange(batch), ["cpu"] * len(shares), policy=Policy(shares=shares))
    assert tuple(len(chunk) for chunk in chunks) == sizes
    assert torch.cat(chunks).tolist() == list(range(batch))


WRONG = [
    *((), (0, 0), (0, 1), (1, 0, 1), (1, -1), (1, math.nan), (math.nan, 1), (1, math.inf), (1, None), (1, "2")),
    *((True, 1), (10**400, 1), (1, 2j), "equal", "auto", 3, 0.5, {1: 2}, torch.ones(2)),
]


@pytest.mark.parametrize("shares", WRONG, ids=lambda shares: repr(shares)[:20])
def test_wrong_shares_are_one_clear_error(shares):
    with pytest.raises(ValueError, match=r"Policy\.shares is .*; None, or a tuple with a finite number") as error:
        Policy(shares=shares)
    assert repr(shares) in str(error.value)


def test_shares_are_kept_as_floats_so_that_a_policy_stays_a_value():
    assert Policy(shares=[1, 2]) == Policy(shares=(1.0, 2.0))
    assert hash(Policy(shares=[1, 2])) == hash(Policy(shares=(1, 2)))
    assert Policy().shares is None


THREE = Policy(shares=(1, 2, 0))


@pytest.mark.parametrize(
    "use",
    [
        lambda: DataParallel(mlp(), CPU4, policy=THREE),
        lambda: scatter(torch.ones(8), CPU4, policy=THREE),
        lambda: scatter_kwargs((torch.ones(8),), {}, CPU4, policy=THREE),
        lambda: data_parallel(mlp(), torch.ones(8, 5), CPU4, policy=THREE),
        lambda: chunk_weights(8, 4, (1, 2, 0)),
    ],
)
def test_another_number_of_shares_than_lanes_is_an_error_with_both(use):
    with pytest.raises(ValueError, match=r"Policy\.shares is \(1\.0, 2\.0, 0\.0\), with 3 shares for 4 lanes"):
        use()


def test_so_it_is_if_devices_or_policy_are_assigned_later():
    wrapper = DataParallel(mlp(), CPU4, policy=Policy(shares=UNEVEN))
    wrapper.policy = THREE
    with pytest.raises(ValueError, match="3 shares for 4 lanes"):
        wrapper(torch.ones(8, 5))
    wrapper.policy = Policy(shares=(1, 0, 0, 0))
    assert wrapper(torch.ones(8, 5)).shape == (8, 3)
    assert wrapper.shares == (1, 0, 0, 0)


def test_without_devices_shares_have_no_effect():
    wrapper = DataParallel(mlp(), policy=Policy(shares=UNEVEN))
    if not wrapper.device_ids:
        assert wrapper(torch.ones(8, 5)).shape == (8, 3)


def assert_step(wrap, batch, sizes, make=normed):
    base = make().double()
    x = torch.randn(batch, 5, dtype=torch.double)
    expected = Chunked(copy.deepcopy(base), 4, shares=UNEVEN)
    assert tuple(map(len, expected.chunks(x))) == sizes
    got, want = wrap(base)(x), expected(x)
    torch.testing.assert_close(got, want)
    got.square().sum().backward()
    want.square().sum().backward()
    assert_grads(base, expected.grads())
    torch.testing.assert_close(dict(base.named_buffers()), dict(expected.base.named_buffers()))


@pytest.mark.parametrize("is_remote", [False, True], ids=["one device", "as if on several"])
@pytest.mark.parametrize(("batch", "sizes"), [(16, (2, 6, 4, 4)), (21, (3, 8, 5, 5)), (33, (4, 13, 8, 8))])
def test_a_step_with_batch_norm_equals_the_plain_module_on_the_chunks(batch, sizes, is_remote, dispatch, monkeypatch):
    if is_remote:
        take_remote_paths(monkeypatch)
    policy = Policy(shares=UNEVEN, dispatch=dispatch)
    assert_step(lambda base: DataParallel(base, CPU4, policy=policy), batch, sizes)
    assert_step(lambda base: partial(data_parallel, base, device_ids=CPU4, policy=policy), batch, sizes)


@pytest.mark.parametrize(("batch", "sizes"), [(1, (1,)), (2, (1, 1)), (3, (1, 1, 1)), (5, (1, 2, 1, 1))])
def test_fewer_items_than_lanes_are_fewer_replicas(batch, sizes):
    assert_step(lambda base: DataParallel(base, CPU4, policy=Policy(shares=UNEVEN)), batch, sizes, mlp)


def test_zeros_at_the_end_are_fewer_lanes_also_for_values_without_tensors():
    seen = []
    wrapper = DataParallel(
        Call(lambda self, *args, **kwargs: seen.append(args)), CPU4, policy=Policy(shares=(3, 1, 0, 0))
    )
    wrapper(5)
    assert seen == [(5,), (5,)]
    assert scatter(["a"], CPU4, policy=Policy(shares=(3, 1, 0, 0))) == [["a"], ["a"]]


def test_tensors_of_other_sizes_in_arguments_are_cut_by_the_same_rule():
    seen = []

    def forward(self, x, pair, mask=None, name=None):
        seen.append((len(x), [len(tensor) for tensor in pair], len(mask["m"]), name))
        return x

    wrapper = DataParallel(Call(forward), CPU4, policy=Policy(shares=UNEVEN, dispatch="sequence"))
    x = torch.arange(16)
    assert wrapper(x, [x, torch.ones(32)], mask={"m": torch.ones(8)}, name="n").tolist() == list(range(16))
    assert seen == [(2, [2, 4], 1, "n"), (6, [6, 12], 3, "n"), (4, [4, 8], 2, "n"), (4, [4, 8], 2, "n")]


@pytest.mark.parametrize(("dim", "shape"), [(1, (2, 8)), (-1, (2, 8)), (0, (8, 2))])
def test_other_dimensions_are_cut_and_joined_too(dim, shape):
    x = torch.arange(16.0).view(shape)
    policy = Policy(shares=UNEVEN)
    chunks = scatter(x, CPU4, dim, policy)
    assert [chunk.size(dim) for chunk in chunks] == [1, 3, 2, 2]
    torch.testing.assert_close(gather(chunks, "cpu", dim), x)
    torch.testing.assert_close(DataParallel(nn.Identity(), CPU4, dim=dim, policy=policy)(x), x)


@pytest.mark.parametrize(("x", "dim"), [(torch.ones(()), 0), (torch.ones(4), 1), (torch.ones(4), -2)])
def test_a_missing_dimension_is_stocks_error(x, dim):
    with pytest.raises((RuntimeError, IndexError), match=r"at least a 1-dim|out of range"):
        scatter(x, CPU4, dim, Policy(shares=UNEVEN))


def test_a_chunk_is_a_view_and_the_gradient_of_the_batch_is_whole():
    x = torch.randn(8, 5, requires_grad=True)
    chunks = scatter(x, CPU4, policy=Policy(shares=UNEVEN))
    assert [chunk.data_ptr() for chunk in chunks] == [x[i].data_ptr() for i in (0, 1, 4, 6)]
    DataParallel(mlp(), CPU4, policy=Policy(shares=UNEVEN))(x).sum().backward()
    assert (x.grad.abs().sum(1) > 0).all()


def test_scattered_twice_differentiable():
    base = nn.Sequential(nn.Linear(3, 2), nn.Tanh()).double()
    wrapper = DataParallel(base, CPU4, policy=Policy(shares=UNEVEN, dispatch="sequence"))
    x = torch.randn(8, 3, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(wrapper, (x,))
    assert torch.autograd.gradgradcheck(wrapper, (x,))


def test_an_empty_batch_goes_to_all_lanes_with_a_share():
    chunks = scatter(torch.ones(0, 2), CPU4, policy=Policy(shares=(1, 2, 3, 0)))
    assert [chunk.shape for chunk in chunks] == [(0, 2)] * 3


@pytest.mark.parametrize("batch", [1, 3, 9, 16, 21])
@pytest.mark.parametrize("shares", [UNEVEN, (3, 1, 0, 0), None])
def test_weights_give_the_mean_over_the_batch(batch, shares):
    wrapper = DataParallel(Call(lambda self, x: x.mean()), CPU4, policy=Policy(shares=shares))
    x = torch.randn(batch)
    weights = chunk_weights(batch, wrapper.device_ids, wrapper.shares)
    with pytest.warns(UserWarning, match="all input tensors were scalars"):
        losses = wrapper(x)
    torch.testing.assert_close((losses * weights).sum(), x.mean())


def test_the_loss_in_the_replicas_keeps_the_mean():
    model, x, y = mlp().double(), torch.randn(21, 5).double(), torch.randint(3, (21,))
    expected = functional.cross_entropy(model(x), y)
    wrapper = DataParallel(with_loss(model, functional.cross_entropy), CPU4, policy=Policy(shares=UNEVEN))
    torch.testing.assert_close(wrapper(x, y).mean(), expected)
