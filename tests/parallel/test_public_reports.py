"""What people reported of data-parallel wrappers elsewhere, as the right value here."""

import abc
import copy
import dataclasses
import gc
import pickle
from collections import UserDict, UserList, deque, namedtuple
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence

from dpbench import DataParallel
from dpbench.parallel import Policy, data_parallel, scatter
from tests.parallel.models import Call

LANES = ["cpu"] * 4
DISPATCHES = ["sequence", "threads"]
Rows = namedtuple("Rows", ["x", "y"])


@dataclasses.dataclass
class Data:
    x: object
    name: str = ""


@dataclasses.dataclass(slots=True, frozen=True)
class Slotted:
    x: object


class Slots:
    __slots__ = ("x",)

    def __init__(self, x):
        self.x = x


def grads_of(module, call):
    call().square().sum().backward()
    grads = [parameter.grad.clone() for parameter in module.parameters()]
    module.zero_grad()
    return grads


def normalised(self, x):
    x -= x.mean(1, keepdim=True)
    x /= 2
    return self.last(x)


def moved(self, x):
    x += self.shift
    return self.last(x)


IN_PLACE = {
    "arithmetic": lambda: Call(normalised, last=nn.Linear(8, 3)),
    "ReLU after a layer that saves its input": lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(8, 3)),
    "a mask": lambda: Call(lambda self, x: self.last(x.masked_fill_(x > 0.5, 0)), last=nn.Linear(8, 3)),
    "an index": lambda: Call(lambda self, x: (x[:, 0].zero_(), self.last(x))[1], last=nn.Linear(8, 3)),
    "a trained weight": lambda: Call(moved, shift=nn.Parameter(torch.randn(8)), last=nn.Linear(8, 3)),
}


@pytest.mark.parametrize("dispatch", DISPATCHES)
@pytest.mark.parametrize("shares", [None, (1, 2, 1, 1)])
@pytest.mark.parametrize("name", IN_PLACE)
def test_a_forward_may_write_to_its_batch_in_place(name, shares, dispatch):
    """fastai#760, PytorchSSD#72: the plain module's gradients, and the plain module's writes."""
    module, x = IN_PLACE[name](), torch.randn(10, 8)
    written, of_plain = x.clone(), x.clone()
    wanted = grads_of(module, lambda: module(of_plain))
    wrapper = DataParallel(module, LANES, policy=Policy(dispatch=dispatch, shares=shares))
    torch.testing.assert_close(grads_of(module, lambda: wrapper(written)), wanted)
    torch.testing.assert_close(written, of_plain)


@pytest.mark.parametrize("name", IN_PLACE)
def test_the_same_of_activations_that_need_gradients(name):
    """A wrapped part of a model, as in K2, gets a tensor with a graph."""
    first, module, x = nn.Linear(8, 8), IN_PLACE[name](), torch.randn(10, 8)
    whole = nn.Sequential(first, module)
    wanted = grads_of(whole, lambda: whole(x))
    wrapped = nn.Sequential(first, DataParallel(module, LANES))
    torch.testing.assert_close(grads_of(whole, lambda: wrapped(x)), wanted)


def test_chunks_that_need_gradients_have_second_derivatives():
    module = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    x = torch.randn(10, 8, requires_grad=True)

    def second(call):
        (first,) = torch.autograd.grad(call(x).square().sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)

    torch.testing.assert_close(second(DataParallel(module, LANES)), second(module))


def test_a_write_to_what_an_earlier_operator_has_saved_is_autograds_error():
    """As with the plain module: the write counts as one to the user's tensor."""
    weight, x = torch.randn(8, requires_grad=True), torch.randn(8, 8)
    saved = (weight * x).sum()
    DataParallel(IN_PLACE["arithmetic"](), LANES)(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.backward()
    activation = (weight * x).sigmoid()  # it saves its output
    loss = DataParallel(IN_PLACE["arithmetic"](), LANES)(activation).sum()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_chunks_of_lanes_on_one_device_have_the_batchs_memory():
    x = torch.randn(8, 3)
    assert [chunk.data_ptr() for chunk in scatter(x, LANES)] == [row.data_ptr() for row in x[::2]]
    with torch.inference_mode():
        torch.testing.assert_close(DataParallel(nn.Linear(3, 2), LANES)(x * 1).shape, torch.Size([8, 2]))


PACKED = {
    "equal lengths": lambda: pack_sequence([torch.randn(4, 3) for _ in range(8)]),
    "other lengths": lambda: pack_padded_sequence(torch.randn(8, 5, 3), [5, 5, 4, 3, 3, 2, 1, 1], batch_first=True),
}


@pytest.mark.parametrize("wrap_input", [lambda x: x, lambda x: [x], lambda x: {"x": x}], ids=["alone", "list", "dict"])
@pytest.mark.parametrize("name", PACKED)
def test_a_packed_sequence_as_input_is_refused_in_one_line(name, wrap_input):
    """pytorch#31422. Its data lie by time, so a cut along the first dimension cuts time."""
    wrapper = DataParallel(Call(lambda self, x: self.rnn(x)[0], rnn=nn.LSTM(3, 5)), LANES)
    with pytest.raises(TypeError, match="a PackedSequence is packed by time and cannot be cut by items"):
        wrapper(wrap_input(PACKED[name]()))


def test_a_packed_sequence_inside_a_forward_works_and_as_output_is_refused():
    """pytorch#6299, #1591: pack and unpack in the forward; `total_length` makes the lanes' outputs equally long."""
    lengths = torch.tensor([5, 5, 4, 3, 3, 2, 1, 1])

    def forward(self, x, lengths, *, is_packed=False):
        outputs = self.rnn(pack_padded_sequence(x, lengths, batch_first=True))[0]
        return outputs if is_packed else pad_packed_sequence(outputs, batch_first=True, total_length=x.size(1))[0]

    module, x = Call(forward, rnn=nn.LSTM(3, 5)), torch.randn(8, 5, 3)
    wrapper = DataParallel(module, LANES)
    torch.testing.assert_close(wrapper(x, lengths), module(x, lengths))
    with pytest.raises(TypeError, match=r"a PackedSequence .* cannot be gathered by items; return padded sequences"):
        wrapper(x, lengths, is_packed=True)


def test_a_named_tuple_is_cut_if_its_fields_share_the_batch():
    module = Call(lambda self, rows: self.last(rows.x) + rows.y, last=nn.Linear(3, 2))
    wrapper, x = DataParallel(module, LANES), torch.randn(8, 3)
    rows = Rows(x, torch.randn(8, 1))
    torch.testing.assert_close(wrapper(rows), module(rows))
    torch.testing.assert_close(wrapper(Rows(x, 2.0)), module(Rows(x, 2.0)))
    with pytest.raises(ValueError, match="Rows: sizes along dimension 0 are"):
        wrapper(Rows(x, torch.randn(2, 8)))


WHOLE = {
    "a data class": Data,
    "a data class with a list": lambda x: Data([x]),
    "a data class with slots": Slotted,
    "a UserDict, as transformers' BatchEncoding": lambda x: UserDict(x=x),
    "a UserList": lambda x: UserList([x]),
    "a deque": lambda x: deque([x]),
    "one in a list": lambda x: [Data(x)],
    "an object, as detr's NestedTensor": lambda x: SimpleNamespace(x=x),
    "an object with slots": Slots,
    "an object in an object": lambda x: [SimpleNamespace(inner=Slots([x]))],
    "a NumPy array": lambda x: x if isinstance(x, str) else x.numpy(),
}


@pytest.mark.parametrize("name", WHOLE)
def test_what_is_not_cut_does_not_go_whole_to_lanes_that_share_a_device(name):
    """8 rows would give 32. On devices stock raises, because the rows are on another device than the weights."""
    wrapper = DataParallel(Call(lambda self, value: self.last(torch.ones(8, 3)), last=nn.Linear(3, 2)), LANES)
    with pytest.raises(TypeError, match="is not cut, so lanes on one device would each compute its whole batch"):
        wrapper(WHOLE[name](torch.randn(8, 3)))
    assert wrapper(WHOLE[name]("a setting")).shape == (32, 2)


PASSED_WHOLE = {
    "constants": SimpleNamespace(mean=torch.ones(3), scale=torch.tensor(2.0)),
    "weights": SimpleNamespace(weight=nn.Parameter(torch.ones(8, 3)), module=nn.Linear(3, 8)),
    "words": np.array(["a"] * 8),
    "a generator": torch.Generator(),
    "many values": SimpleNamespace(words=[str(i) for i in range(100_000)]),
}


@pytest.mark.parametrize("name", PASSED_WHOLE)
def test_an_object_beside_a_batch_is_shared_unless_it_has_as_many_rows(name):
    wrapper = DataParallel(Call(lambda self, x, other: x), LANES)
    assert wrapper(torch.randn(8, 3), other=PASSED_WHOLE[name]).shape == (8, 3)
    with pytest.raises(TypeError, match="a SimpleNamespace is not cut"):
        wrapper(torch.randn(8, 3), other=[PASSED_WHOLE[name], SimpleNamespace(mask=torch.ones(8))])


def test_lists_of_detections_are_refused_with_a_reason():
    """Detection models of torchvision give a dict for each image."""
    wrapper = DataParallel(Call(lambda self, x: [{"boxes": torch.ones(2, 4)} for _ in x]), LANES)
    with pytest.raises(ValueError, match=r"gave 2, 2, 2, 1 values in a list, .* return padded tensors"):
        wrapper(torch.randn(7, 3))


class Closes(nn.Linear):
    """Refers to its attributes at its end, as modules do that own a file or a thread."""

    def __init__(self):
        super().__init__(3, 2)
        self.handle = ["open"]

    def __del__(self):
        self.handle.append("closed")


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("policy", [{}, {"cache_replicas": False}], ids=str)
@pytest.mark.parametrize("make", [Closes, lambda: nn.Sequential(Closes(), nn.ReLU())])
def test_a_module_with_an_ending_of_its_own_ends_without_an_error(make, policy):
    """Stock prints none: its replicas have all attributes when they end."""
    module = make()
    wrapper = DataParallel(module, LANES, policy=Policy(**policy))
    closing = module if isinstance(module, Closes) else module[0]
    seen = []
    closing.register_forward_hook(lambda self, *_: seen.append(type(self)))
    for _ in range(3):
        wrapper(torch.randn(8, 3)).sum().backward()
    assert set(seen) == {Closes}
    del wrapper
    gc.collect()
    if not policy:
        assert closing.handle == ["open"]


def test_exact_types_are_asked_for_as_training_scripts_do():
    """yolov5 `de_parallel`, and its copies."""
    wrapper = DataParallel(nn.Linear(4, 2), LANES)
    assert type(wrapper) in (nn.DataParallel, DistributedDataParallel)
    assert type(wrapper) == nn.parallel.DataParallel  # noqa: E721
    assert type(wrapper) != DistributedDataParallel  # noqa: E721
    assert type(nn.DataParallel(nn.Linear(4, 2))) not in (DistributedDataParallel,)
    assert nn.Linear not in (DataParallel, nn.DataParallel)
    assert len({nn.DataParallel, DataParallel}) == 2

    class Own(DataParallel, abc.ABC):
        pass

    assert type(Own(nn.Linear(4, 2), LANES)) not in (nn.DataParallel, DataParallel)
    restored = pickle.loads(pickle.dumps(wrapper))
    assert type(restored) is type(copy.deepcopy(wrapper)) is DataParallel


def test_the_remedy_for_scripts_that_ask_by_identity(monkeypatch):
    for place in (nn, nn.parallel):
        monkeypatch.setattr(place, "DataParallel", DataParallel)
    model = torch.nn.DataParallel(nn.Linear(4, 2), LANES)
    assert type(model) is nn.DataParallel is nn.parallel.DataParallel
    assert model(torch.randn(8, 4)).shape == (8, 2)


def add(self, x, delta=1, flag=None):
    return x + delta


def times(self, x, k=1):
    return k * x


def pooled(self, x):
    return self.last(nn.functional.adaptive_avg_pool2d(x, 1).squeeze())


ONES = torch.ones(8, 3)
RIGHT = {
    "pytorch#33185, #31460: constants beside a batch of 1": lambda: (
        DataParallel(Call(add), LANES)(ONES[:1], delta=3, flag="a"),
        ONES[:1] + 3,
    ),
    "pytorch#16432: the same by the function": lambda: (
        data_parallel(Call(times), ONES[:2], LANES, module_kwargs={"k": 2}),
        2 * ONES[:2],
    ),
    "pytorch#1169: keywords alone": lambda: (DataParallel(Call(times), LANES)(x=ONES, k=2), 2 * ONES),
    "pytorch#5664: another dimension, uneven": lambda: (
        DataParallel(nn.Identity(), LANES, dim=1)(torch.ones(3, 7)),
        torch.ones(3, 7),
    ),
    "pytorch#7956, #9811: scalars become a vector": lambda: (
        DataParallel(Call(lambda self, x: x.mean()), LANES)(ONES),
        torch.ones(4),
    ),
    "pytorch#8932: squeeze, and a chunk of one item": lambda: (
        DataParallel(Call(pooled, last=nn.Linear(3, 2)), LANES)(torch.ones(9, 3, 4, 4)).isfinite(),
        torch.ones(9, 2, dtype=torch.bool),
    ),
    "frozen-in-time#23: as many chunks as stock": lambda: (
        torch.tensor([len(scatter(torch.ones(size), LANES)) for size in range(1, 128)]),
        torch.tensor([len(torch.ones(size).chunk(4)) for size in range(1, 128)]),
    ),
    "pytorch#7358: a list is cut to its shortest tensor, as in stock": lambda: (
        DataParallel(Call(lambda self, pair: pair[0]), LANES)([torch.ones(5, 2), torch.ones(1, 2)]),
        torch.ones(2, 2),
    ),
    "pytorch#36035: parameters in lists and dicts": lambda: (
        DataParallel(
            Call(
                lambda self, x: x @ self.some[0] + x @ self.others["a"],
                some=nn.ParameterList([nn.Parameter(torch.ones(3, 2))]),
                others=nn.ParameterDict({"a": nn.Parameter(torch.ones(3, 2))}),
            ),
            LANES,
        )(ONES),
        torch.full((8, 2), 6.0),
    ),
}


@pytest.mark.filterwarnings("ignore:Was asked to gather along dimension 0")
@pytest.mark.parametrize("name", RIGHT)
def test_what_was_right_stays_right(name):
    actual, wanted = RIGHT[name]()
    torch.testing.assert_close(actual, wanted)
