"""`replicate` as in stock."""

import gc
import io

import pytest
import torch
from torch import nn

from dpbench.parallel import DataParallel, replicate
from tests.parallel.models import Call, Tied, mlp, normed

TWO = ["cpu"] * 2


def test_the_first_replica_shares_the_bases_memory_the_others_do_not():
    base = normed()
    first, second = replicate(base, TWO)
    for name in ("0.weight", "1.running_mean"):
        module, attribute = name.split(".")
        ours = getattr(base[int(module)], attribute)
        assert getattr(first[int(module)], attribute).data_ptr() == ours.data_ptr()
        assert getattr(second[int(module)], attribute).data_ptr() != ours.data_ptr()
        torch.testing.assert_close(getattr(second[int(module)], attribute), ours)
    assert first[1].running_mean is base[1].running_mean
    assert list(second.state_dict()) == list(base.state_dict())
    assert replicate(base, TWO)[1] is not second
    assert replicate(base, []) == []


def test_other_replicas_are_a_snapshot():
    base = mlp()
    first, second = replicate(base, TWO)
    before = base[0].weight.detach().clone()
    with torch.no_grad():
        base[0].weight.add_(1)
    torch.testing.assert_close(first[0].weight, base[0].weight)
    torch.testing.assert_close(second[0].weight, before)


def test_weights_are_no_leaves_and_lead_to_the_base():
    base = mlp()
    for replica in replicate(base, TWO):
        assert replica[0].weight.grad_fn is not None
        assert not isinstance(replica[0].weight, nn.Parameter)
    replica[0].weight.sum().backward()
    torch.testing.assert_close(base[0].weight.grad, torch.ones(7, 5))


def test_weights_without_gradients_have_no_graph():
    base = mlp()
    with torch.no_grad():
        replicas = replicate(base, TWO)
    assert [weight.grad_fn for replica in replicas for weight in replica.parameters()] == [None] * 8
    base[2].requires_grad_(False)
    second = replicate(base, TWO)[1]
    assert (second[2].weight.grad_fn, second[2].bias.grad_fn) == (None, None)
    assert second[0].bias.grad_fn is not None
    first, second = replicate(base, TWO, detach=True)
    assert first[0].weight is base[0].weight
    assert not second[0].weight.requires_grad


def test_tied_parameters_and_shared_modules_stay_so():
    shared = nn.Linear(2, 2)
    base = nn.ModuleDict({"tied": Tied(), "a": shared, "b": shared})
    for replica in replicate(base, TWO):
        assert replica["tied"].head.weight is replica["tied"].embedding.weight
        assert replica["a"] is replica["b"]


@pytest.mark.parametrize("kind", ["plain", "custom"])
def test_none_entries_are_kept(kind):
    base = nn.Linear(2, 2, bias=False) if kind == "plain" else Own(2, 2, bias=False)
    base.register_buffer("nothing", None)
    base.add_module("child", None)
    for replica in replicate(base, TWO):
        assert replica.bias is None
        assert replica.nothing is None
        assert replica.child is None


def test_attributes_and_hook_tables_are_the_bases_own_objects():
    base = mlp()
    base.table = {}
    for replica in replicate(base, TWO):
        assert replica.table is base.table
        assert replica._forward_hooks is base._forward_hooks
        assert replica._is_replica


def test_every_tensor_has_its_own_version_counter():
    second = replicate(normed(), TWO)[1]
    with torch.no_grad():
        second[1].running_mean.add_(1)
    assert second[1].running_var._version == 0
    out = second[0](torch.randn(2, 5, requires_grad=True))
    with torch.no_grad():
        second[3].weight.mul_(2)
    out.sum().backward()


@pytest.mark.parametrize("bucket", [1, 4])
def test_replicas_on_one_device_do_not_alias_the_base_even_if_a_bucket_has_one_tensor(bucket):
    # Stock's flatten of one tensor is a view, so its second replica on [0, 0] writes into the base.
    base = Call(lambda self, x: x + self.count.add_(1), count=nn.Buffer(torch.zeros(bucket)))
    DataParallel(base, TWO)(torch.zeros(2, bucket))
    assert base.count.tolist() == [1] * bucket


def test_zero_grad_of_a_replica_warns():
    with pytest.warns(UserWarning, match="has no effect"):
        replicate(mlp(), TWO)[1].zero_grad()


def test_replicas_can_be_saved():
    for detach in (False, True):
        base, saved = normed(), io.BytesIO()
        torch.save(replicate(base, TWO, detach), saved)
        saved.seek(0)
        for replica in torch.load(saved, weights_only=False):
            torch.testing.assert_close(
                [*replica.parameters(), *replica.buffers()], [*base.parameters(), *base.buffers()]
            )


def test_no_reference_cycles():
    gc.collect()
    wrapper = DataParallel(normed(), TWO)
    gc.collect()
    wrapper(torch.randn(4, 5)).sum().backward()
    assert gc.collect() == 0
    del wrapper
    assert gc.collect() == 0


class Own(nn.Linear):
    """A custom module by stock's protocol, with a weight that is made from the assigned one."""

    def _replicate_for_data_parallel(self):
        return super()._replicate_for_data_parallel()

    def __setattr__(self, name, value):
        if name == "weight" and "_is_replica" in self.__dict__:
            self.__dict__[name] = value * 2
        else:
            super().__setattr__(name, value)


@pytest.mark.parametrize("kind", [nn.Linear, Own], ids=["plain", "custom"])
def test_weights_are_in_the_attribute_that_ddp_reads(kind):
    for replica in replicate(kind(3, 2), TWO):
        assert list(replica._former_parameters) == ["weight", "bias"]
        assert kind is Own or replica._former_parameters["weight"] is replica.weight


def test_replicas_have_the_weight_that_a_modules_own_setattr_makes():
    base = Own(3, 2, bias=False)
    for replica in replicate(base, TWO):
        torch.testing.assert_close(replica.weight, base.weight * 2)


def test_sparse_buffers_arrive_sparse():
    base = Call(lambda self, x: torch.mm(self.s, x.T).T, s=nn.Buffer(torch.eye(3).to_sparse()))
    first, second = (replica.s._values().data_ptr() for replica in replicate(base, TWO))
    assert first == base.s._values().data_ptr() != second
