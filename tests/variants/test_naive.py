import threading
from collections import namedtuple

import pytest
import torch
from torch import Tensor, nn

from dpbench.variants import naive as naive_broadcast
from dpbench.variants.naive import NAIVE, NaiveBroadcast, parallel_apply, reduce_add_coalesced, replicate
from tests.variants.chunked import CPU


class Call(nn.Module):
    """A module that calls `act` with itself and its inputs. It holds one tensor of each sort."""

    def __init__(self, act) -> None:
        super().__init__()
        self.act = act
        self.weight = nn.Parameter(torch.ones(2))
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.register_parameter("absent", None)
        self.register_buffer("seen", torch.zeros(1))
        self.register_buffer("no_buffer", None)
        self.register_buffer("learned", torch.ones(2, requires_grad=True))

    def forward(self, *inputs):
        return self.act(self, *inputs)


def two_lanes(module: nn.Module, *inputs: Tensor):
    return NAIVE.wrap(module, [CPU, CPU])(*inputs)


def test_replica_0_shares_the_bases_storage_and_the_others_hold_copies():
    base = Call(None)
    with torch.no_grad():
        first, second = replicate(base, [CPU, CPU])
    tracked = replicate(base, [CPU, CPU])
    for name in ("weight", "frozen", "seen", "learned"):
        origin = getattr(base, name).data_ptr()
        assert getattr(first, name).data_ptr() == getattr(tracked[0], name).data_ptr() == origin
        assert getattr(second, name).data_ptr() != origin
        assert getattr(tracked[1], name).data_ptr() != origin
    assert first.absent is second.absent is first.no_buffer is None


def test_replicas_parameters_are_attributes_that_lead_back_to_the_base():
    base = Call(None)
    for replica in replicate(base, [CPU, CPU]):
        assert not list(replica.parameters())
        assert replica.weight.grad_fn is not None
        assert replica.learned.grad_fn is not None
        assert not replica.frozen.requires_grad
        assert not replica.seen.requires_grad


def test_modules_and_tensors_used_twice_in_the_base_are_used_twice_in_a_replica():
    base = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    base[1].weight = base[0].weight
    base.append(base[0])
    for replica in replicate(base, [CPU, CPU]):
        assert replica[0] is replica[2]
        assert replica[0].weight is replica[1].weight


def test_each_copy_has_a_version_counter_of_its_own():
    base = nn.BatchNorm1d(3)
    replica = replicate(base, [CPU, CPU])[1]
    before = replica.running_var._version
    replica.running_mean.add_(1)
    assert replica.running_var._version == before


def test_only_replica_0_writes_to_the_bases_buffers():
    def act(self, x):
        self.seen += len(x)
        self.note = 1
        return x

    base = Call(act)
    two_lanes(base, torch.ones(5, 2))
    assert base.seen == 3
    assert not hasattr(base, "note")


def test_gradients_are_summed_into_every_sort_of_tensor():
    base = Call(lambda self, x: x * self.weight * self.frozen * self.learned)
    two_lanes(base, torch.ones(4, 2)).sum().backward()
    assert base.weight.grad.tolist() == base.learned.grad.tolist() == [4, 4]
    assert base.frozen.grad is None


def test_an_unused_parameter_gets_zeros_if_another_is_used_as_in_the_stock_wrapper():
    base = Call(lambda self, x: x * self.learned)
    two_lanes(base, torch.ones(4, 2)).sum().backward()
    assert base.weight.grad is None
    base = nn.ModuleDict({"used": nn.Linear(2, 1), "unused": nn.Linear(2, 1)})
    replicas = replicate(base, [CPU, CPU])
    sum(replica["used"](torch.ones(1, 2)).sum() for replica in replicas).backward()
    assert base["unused"].weight.grad.tolist() == [[0, 0]]


def test_a_replica_runs_in_a_new_thread_with_the_callers_grad_mode():
    seen = []
    base = Call(lambda self, x: seen.append((threading.current_thread(), torch.is_grad_enabled())) or x)
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            two_lanes(base, torch.ones(4, 2))
    threads, modes = zip(*seen, strict=True)
    assert len(set(threads)) == 4
    assert threading.main_thread() not in threads
    assert modes == (True, True, False, False)


def test_autocast_reaches_the_replicas_with_its_dtype():
    seen = []
    base = Call(lambda self, x: seen.append((x @ x.T).dtype) or x)
    with torch.autocast("cpu", dtype=torch.float16):
        two_lanes(base, torch.ones(4, 2))
    two_lanes(base, torch.ones(4, 2))
    assert seen == [torch.float16] * 2 + [torch.float32] * 2


def test_an_exception_is_raised_after_all_threads_and_names_replica_and_device():
    ended = []

    def act(self, x):
        if x[0, 0] == 1:
            raise KeyError("lost")
        ended.append(x)
        return x

    with pytest.raises(KeyError, match=r"Caught KeyError in replica 1 on device cpu\.") as caught:
        NAIVE.wrap(Call(act), [CPU] * 3)(torch.tensor([[0.0], [1.0], [2.0]]))
    assert "Original Traceback" in str(caught.value)
    assert len(ended) == 2


def test_the_first_of_two_exceptions_is_raised():
    def act(self, x):
        raise ValueError("lost")

    with pytest.raises(ValueError, match="in replica 0 on device cpu"):
        parallel_apply([Call(act), Call(act)], [(1,), (2,)], [CPU, CPU])


def test_outputs_are_gathered_through_structures():
    pair = namedtuple("pair", ["left", "right"])
    base = Call(lambda self, x: {"a": pair(x, [x.sum()]), "b": (None, x * 2)})
    output = two_lanes(base, torch.arange(3.0))
    assert output["a"].left.tolist() == [0, 1, 2]
    assert output["a"].right[0].tolist() == [1, 2]
    assert output["b"][0] is None
    assert output["b"][1].tolist() == [0, 2, 4]


def test_several_inputs_are_cut_into_the_same_chunks():
    base = Call(lambda self, x, y: x + y * self.weight[0])
    assert two_lanes(base, torch.arange(5.0), torch.arange(5.0)).tolist() == [0, 2, 4, 6, 8]


def test_broadcast_and_reduction_are_each_others_adjoint():
    inputs = [torch.randn(2, 3, dtype=torch.float64), torch.randn(4, dtype=torch.complex128)]
    tensors = [x.requires_grad_() for x in inputs]

    def broadcast(*xs):
        return NaiveBroadcast.apply([CPU, CPU], *xs)

    assert torch.autograd.gradcheck(broadcast, tensors)
    assert torch.autograd.gradgradcheck(broadcast, tensors)


def test_a_gradient_penalty_has_the_plain_modules_gradients():
    def penalty(forward, base):
        x = torch.linspace(-1, 1, 8, dtype=torch.float64).reshape(4, 2)
        inner = torch.autograd.grad(forward(x).sum(), base.weight, create_graph=True)[0]
        inner.pow(2).sum().backward()
        return base.weight.grad

    torch.manual_seed(0)
    base = nn.Linear(2, 2).double()
    base.register_forward_hook(lambda module, args, output: torch.tanh(output))
    actual = penalty(NAIVE.wrap(base, [CPU] * 2), base)
    base.weight.grad = None
    torch.testing.assert_close(actual, penalty(base, base))


def test_sparse_gradients_stay_sparse_and_a_mix_becomes_dense():
    sparse = torch.eye(3).to_sparse()
    dense = torch.ones(3, 3)
    both, mixed = reduce_add_coalesced([[sparse, sparse], [sparse, dense]], CPU)
    assert both.is_sparse
    assert torch.equal(both.to_dense(), 2 * torch.eye(3))
    assert torch.equal(mixed, torch.eye(3) + 1)


def test_a_step_sends_as_many_messages_as_the_coalescing_rule_says(monkeypatch):
    """The broadcast joins two tensors of 6 MiB; the reduction joins the last with 28 bytes."""
    flattened = []
    flatten = naive_broadcast._flatten_dense_tensors
    monkeypatch.setattr(
        naive_broadcast, "_flatten_dense_tensors", lambda ts: flattened.append([len(t) for t in ts]) or flatten(ts)
    )
    rows = 6 * 2**18  # of 4 bytes
    base = nn.Module()
    base.a, base.b, base.c = (nn.Parameter(torch.ones(n)) for n in (rows, rows, 7))
    replicas = replicate(base, [CPU, CPU])
    assert flattened == [[rows, rows], [7]]
    flattened.clear()
    sum((r.a.sum() + r.b.sum() + r.c.sum()) for r in replicas).backward()
    assert flattened == [[rows], [rows], [rows, 7], [rows, 7]]
    assert base.c.grad.tolist() == [2] * 7
