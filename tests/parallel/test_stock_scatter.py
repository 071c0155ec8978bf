"""`scatter` and `scatter_kwargs` as in stock."""

from collections import OrderedDict, defaultdict, namedtuple

import pytest
import torch

from dpbench.parallel import DataParallel, chunk_weights, gather, scatter, scatter_kwargs
from tests.parallel.models import Call

FOUR = ["cpu"] * 4
Pair = namedtuple("Pair", ["a", "b"])


@pytest.mark.parametrize(
    ("size", "sizes"), [(8, [2] * 4), (9, [3] * 3), (10, [3, 3, 3, 1]), (2, [1, 1]), (1, [1]), (0, [0] * 4)]
)
def test_tensors_are_cut_as_torch_chunk_does(size, sizes):
    chunks = scatter(torch.arange(size), FOUR)
    assert isinstance(chunks, tuple)
    assert [len(chunk) for chunk in chunks] == sizes
    torch.testing.assert_close(torch.cat(chunks), torch.arange(size))


@pytest.mark.parametrize("dim", [1, -1])
def test_tensors_are_cut_along_dim(dim):
    chunks = scatter(torch.zeros(2, 8), FOUR, dim)
    assert [chunk.shape for chunk in chunks] == [(2, 2)] * 4


def test_a_chunk_already_on_its_device_is_a_view():
    x = torch.randn(4, 2)
    assert [chunk.data_ptr() for chunk in scatter(x, FOUR)] == [row.data_ptr() for row in x]


def test_one_lane_gets_views_too_so_that_a_forward_may_reshape_them_in_place():
    x, y = torch.ones(4, 2), torch.ones(3, requires_grad=True)
    ((a, b),), kwargs = scatter_kwargs((x, y), {}, ["cpu"])
    assert kwargs == ({},)
    assert a.data_ptr() == x.data_ptr()
    a.t_().requires_grad_()
    assert (x.shape, x.requires_grad) == ((4, 2), False)
    (2 * b).sum().backward()
    assert y.grad.tolist() == [2, 2, 2]


def test_memory_format_is_kept():
    x = torch.randn(4, 3, 5, 5).contiguous(memory_format=torch.channels_last)
    assert all(chunk.is_contiguous(memory_format=torch.channels_last) for chunk in scatter(x, FOUR))


def test_containers_are_walked_and_keep_their_types():
    x = torch.arange(4)
    value = OrderedDict(t=(x, [x, "s"]), n=Pair(x, None), e=[], c=5)
    chunks = scatter(value, FOUR)
    assert isinstance(chunks, list)
    assert len({id(chunk) for chunk in chunks}) == 4
    for i, chunk in enumerate(chunks):
        assert type(chunk) is OrderedDict
        assert list(chunk) == ["t", "n", "e", "c"]
        assert type(chunk["t"]) is tuple
        assert type(chunk["t"][1]) is list
        assert type(chunk["n"]) is Pair
        assert chunk["n"].a.tolist() == [i]
        assert chunk["t"][1][1] == "s"
        assert chunk["e"] is value["e"]


def test_values_without_tensors_go_to_every_device_by_reference():
    value = object()
    assert scatter(value, FOUR) == [value] * 4
    assert scatter([1, 2], FOUR) == [[1, 2]] * 4
    assert scatter((), FOUR) == [()] * 4


@pytest.mark.parametrize("lanes", [1, 4])
def test_lists_and_dicts_without_tensors_are_each_lanes_own(lanes):
    options = defaultdict(int, a=[3], b=({"c": 1},))
    chunks, kwargs = scatter_kwargs((torch.arange(4), options, Pair([1], None)), {"k": [2]}, FOUR[:lanes])
    for (_, mine, pair), named in zip(chunks, kwargs, strict=True):
        assert mine == options
        assert type(mine) is defaultdict
        assert (mine.pop("a").pop(), mine.pop("b")[0].pop("c"), pair.a.pop(), named["k"].pop()) == (3, 1, 1, 2)
    assert options == {"a": [3], "b": ({"c": 1},)}


def test_lists_and_dicts_are_each_lanes_own_without_any_tensor():
    given = {"k": [1]}
    for chunks in (scatter(given, FOUR), scatter_kwargs((given,), {}, FOUR)[0], scatter_kwargs((), given, FOUR)[1]):
        assert len({id(chunk) for chunk in chunks}) == 4
    _, kwargs = scatter_kwargs((), given, FOUR)
    kwargs[0]["k"].pop()
    assert [chunk["k"] for chunk in kwargs] == [[], [1], [1], [1]]


@pytest.mark.parametrize("value", [[], {}, object(), torch.Size([2, 3])], ids=["list", "dict", "object", "size"])
def test_immutable_and_empty_values_stay_the_same_object(value):
    assert all(chunk is value for chunk in scatter(value, FOUR))


def test_a_tuple_is_cut_to_its_shortest_member():
    chunks = scatter((torch.arange(8), torch.arange(2)), FOUR)
    assert [(a.tolist(), b.tolist()) for a, b in chunks] == [([0, 1], [0]), ([2, 3], [1])]


def test_kwargs_are_cut_beside_inputs():
    inputs, kwargs = scatter_kwargs((torch.arange(4),), {"y": torch.arange(8)}, FOUR)
    assert [x.tolist() for (x,) in inputs] == [[0], [1], [2], [3]]
    assert [chunk["y"].tolist() for chunk in kwargs] == [[0, 1], [2, 3], [4, 5], [6, 7]]


@pytest.mark.parametrize(
    ("inputs", "kwargs", "expected"),
    [
        ((), {}, ((), ())),
        ((), None, ((), ())),
        ((1,), {}, (((1,),) * 4, ({},) * 4)),
        ((), {"k": 1}, (((),) * 4, ({"k": 1},) * 4)),
    ],
)
def test_arguments_without_tensors(inputs, kwargs, expected):
    assert scatter_kwargs(inputs, kwargs, FOUR) == expected


@pytest.mark.parametrize("lanes", [1, 2])
def test_keyword_arguments_come_along(lanes):
    wrapper = DataParallel(Call(lambda self, x, *, factor=1: x * factor), ["cpu"] * lanes)
    assert wrapper(torch.ones(2), factor=3).tolist() == [3, 3]


def test_chunk_weights_have_the_default_dtype():
    torch.set_default_dtype(torch.float64)
    try:
        assert chunk_weights(3, 2).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_gather_undoes_scatter(dim):
    x = torch.randn(4, 4)
    torch.testing.assert_close(gather(scatter(x, FOUR, dim), "cpu", dim), x)


def test_scatter_is_differentiable_twice():
    x = torch.randn(4, 2, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: scatter(x, FOUR[:2]), (x,))
    assert torch.autograd.gradgradcheck(lambda x: scatter(x, FOUR[:2]), (x,))


@pytest.mark.parametrize(
    ("sizes", "missing"), [((2, 4), "positional argument: 'x'"), ((4, 2), "keyword-only argument: 'y'")]
)
def test_too_few_chunks_are_padded_so_that_the_replica_names_the_missing_argument(sizes, missing):
    with pytest.raises(TypeError, match=f"missing 1 required {missing}"):
        DataParallel(Call(lambda self, x, *, y: x + y), FOUR)(torch.ones(sizes[0]), y=torch.ones(sizes[1]))


OUT_OF_RANGE = r"at least a 1-dim|out of range"
ERRORS = [
    (lambda: scatter(torch.tensor(1.0), FOUR), "chunk expects at least a 1-dimensional tensor"),
    (lambda: scatter_kwargs((torch.ones(()),), {}, ["cpu"]), OUT_OF_RANGE),
    (lambda: scatter_kwargs((torch.ones(4),), {}, ["cpu"], 1), OUT_OF_RANGE),
    (lambda: scatter_kwargs((torch.ones(4),), {}, ["cpu"], -2), OUT_OF_RANGE),
    (lambda: scatter(torch.ones(2), []), r"target_gpus is \[\]; at least one device is needed"),
    (lambda: scatter_kwargs((torch.ones(2),), None, []), r"target_gpus is \[\]; at least one device is needed"),
    (lambda: chunk_weights(2, []), "batch is 2 and devices 0"),
]


@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_what_cannot_be_cut_is_an_error(call, message):
    with pytest.raises((ValueError, RuntimeError, IndexError), match=message):
        call()
