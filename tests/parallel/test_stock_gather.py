"""`gather` as in stock."""

import dataclasses
from collections import OrderedDict, defaultdict, deque, namedtuple

import pytest
import torch

from dpbench.parallel import gather

Pair = namedtuple("Pair", ["a", "b"])
ONE, TWO = torch.ones(2, 3), torch.full((1, 3), 2.0)


def test_tensors_are_joined():
    assert gather([ONE, TWO], "cpu").tolist() == [[1] * 3, [1] * 3, [2] * 3]
    assert gather([ONE.T, TWO.T], "cpu", 1).shape == (3, 3)
    assert gather([ONE.T, TWO.T], "cpu", -1).shape == (3, 3)


def test_containers_keep_their_types():
    out = gather([OrderedDict(l=[t], t=(t,), n=Pair(t, None)) for t in (ONE, TWO)], "cpu")
    assert type(out) is OrderedDict
    assert list(out) == ["l", "t", "n"]
    assert type(out["l"]) is list
    assert type(out["t"]) is tuple
    assert type(out["n"]) is Pair
    assert out["n"].a.shape == (3, 3)
    assert out["n"].b is None


def test_dicts_may_have_their_keys_in_any_order():
    assert gather([{"x": ONE, "y": ONE}, {"y": TWO, "x": TWO}], "cpu")["x"].shape == (3, 3)


def test_lists_and_tuples_go_together():
    assert gather([[ONE], (TWO,)], "cpu")[0].shape == (3, 3)


def test_the_replicas_outputs_are_not_changed():
    @dataclasses.dataclass
    class Output:
        out: torch.Tensor

    given = [Output(ONE), Output(TWO)]
    assert gather(given, "cpu").out.shape == (3, 3)
    assert given[0].out is ONE


def test_the_first_replica_decides():
    assert gather([None, ONE], "cpu") is None


@dataclasses.dataclass
class Point:
    x: torch.Tensor


SCALARS = [torch.tensor(1.0), torch.tensor(2.0)]
ERRORS = [
    ([{"x": ONE}, {"x": ONE, "y": ONE}], 0, ValueError, "All dicts must have the same number of keys"),
    ([{"x": ONE}, {"y": ONE}], 0, ValueError, r"replica 0 gave the keys \['x'\] where replica 1 gave \['y'\]"),
    ([(ONE,), (ONE, ONE)], 0, ValueError, "zip"),
    ([deque([ONE]), deque([ONE, ONE])], 0, ValueError, "zip"),
    ([], 0, ValueError, r"outputs is \[\]; the output of at least one replica is needed"),
    ((), 0, ValueError, r"outputs is \(\); the output of at least one replica is needed"),
    (SCALARS, 1, IndexError, "cannot gather tensors of 0 dimensions along 1"),
    (SCALARS, -1, IndexError, "cannot gather tensors of 0 dimensions along -1"),
    ([torch.ones(2, 3), torch.ones(2, 4)], 0, RuntimeError, ""),
    ([ONE, None], 0, TypeError, "replica 0 gave a tensor where replica 1 gave NoneType"),
    ([{"a": ONE}, None], 0, TypeError, "gave a dict where replica 1 gave NoneType; cannot gather"),
    ([{"a": ONE}, ONE], 0, TypeError, "gave a dict where replica 1 gave Tensor; cannot gather"),
    ([[ONE], None], 0, TypeError, "gave a list where replica 1 gave NoneType; cannot gather"),
    ([(ONE,), ONE[:1]], 0, TypeError, "gave a tuple where replica 1 gave Tensor; cannot gather"),  # rows are no members
    ([Point(ONE), (ONE,)], 0, TypeError, "gave a Point where replica 1 gave tuple; cannot gather"),
]


@pytest.mark.parametrize(("outputs", "dim", "error", "message"), ERRORS)
def test_outputs_that_do_not_fit_are_an_error_that_names_them(outputs, dim, error, message):
    with pytest.raises(error, match=message):
        gather(outputs, "cpu", dim)


def test_scalars_become_a_vector_with_a_warning():
    with pytest.warns(UserWarning, match="vector") as caught:
        assert gather([torch.tensor(1.0), torch.tensor(2.0)], "cpu").tolist() == [1, 2]
    assert str(caught[0].message) == (
        "Was asked to gather along dimension 0, but all input tensors were scalars; "
        "will instead unsqueeze and return a vector."
    )


def test_minus_one_is_the_cpu_with_a_warning():
    with pytest.warns(FutureWarning, match="Using -1 to represent CPU tensor is deprecated"):
        assert gather([ONE, TWO], -1).device.type == "cpu"


def test_channels_last_is_kept_if_all_are():
    image = torch.randn(2, 3, 4, 4)
    last = image.contiguous(memory_format=torch.channels_last)
    assert gather([last, last], "cpu").is_contiguous(memory_format=torch.channels_last)
    assert gather([image, image], "cpu").is_contiguous()


def test_gather_is_differentiable_twice():
    tensors = [torch.randn(n, 2, dtype=torch.double, requires_grad=True) for n in (2, 1)]
    assert torch.autograd.gradcheck(lambda *t: gather(t, "cpu"), tensors)
    assert torch.autograd.gradgradcheck(lambda *t: gather(t, "cpu"), tensors)


class Pairs:
    """Iterates over its layers and is made from such an iterable (transformers' DynamicCache)."""

    def __init__(self, layers=()):
        self.layers = list(layers)

    def __iter__(self):
        return iter(self.layers)


@pytest.mark.parametrize("kind", [Pairs, deque])
def test_a_collection_that_its_type_makes_from_members_is_gathered_as_in_stock(kind):
    out = gather([kind([(ONE, 2 * ONE), (ONE, None)]), kind([(TWO, TWO), (TWO, None)])], "cpu")
    assert type(out) is kind
    (first, second), (third, nothing) = out
    torch.testing.assert_close((first, second, third), (torch.cat([ONE, TWO]), torch.cat([2 * ONE, TWO]), first))
    assert nothing is None


class Fixed:
    """Iterates over tensors, but is made from something else."""

    def __init__(self, first, second):
        self.both = first, second

    def __iter__(self):
        return iter(self.both)


class Wrapped:
    """Iterates over tensors, and is made from an object that holds them."""

    def __init__(self, holder):
        self.both = holder.both

    def __iter__(self):
        return iter(self.both)


class Image:
    """Like an array of numbers: too many to inspect one by one."""

    def __array__(self):
        raise AssertionError

    def __iter__(self):
        raise AssertionError


@pytest.mark.parametrize(
    "make",
    [
        lambda: Fixed(ONE, TWO),
        lambda: Wrapped(Fixed(ONE, TWO)),
        lambda: {ONE, TWO},
        Image,
        lambda: "ab",
        lambda: range(3),
    ],
)
def test_other_collections_stay_one_per_replica(make):
    outputs = [make(), make()]
    out = gather(outputs, "cpu")
    assert type(out) is list
    assert all(ours is given for ours, given in zip(out, outputs, strict=True))


def test_an_iterator_is_not_used_up():
    outputs = [iter([ONE, TWO]), iter([ONE, TWO])]
    assert [len(list(iterator)) for iterator in gather(outputs, "cpu")] == [2, 2]


@dataclasses.dataclass
class Record(OrderedDict):
    """A dataclass and a dict, made by its fields only, like the outputs of diffusers."""

    sample: torch.Tensor = None
    extra: torch.Tensor | None = None

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def __reduce__(self):
        make, _, *rest = super().__reduce__()
        return make, tuple(getattr(self, field.name) for field in dataclasses.fields(self)), *rest


def test_a_dict_that_is_a_dataclass_is_gathered_as_both():
    out = gather([Record(ONE), Record(TWO)], "cpu")
    assert type(out) is Record
    assert list(out) == ["sample"]
    assert out.sample is out["sample"]
    torch.testing.assert_close(out.sample, torch.cat([ONE, TWO]))
    assert out.extra is None


def test_a_defaultdict_keeps_its_default():
    outputs = [defaultdict(list, a=part) for part in (ONE, TWO)]
    out = gather(outputs, "cpu")
    torch.testing.assert_close(out["a"], torch.cat([ONE, TWO]))
    assert out["other"] == []
    assert list(outputs[0]) == ["a"]
