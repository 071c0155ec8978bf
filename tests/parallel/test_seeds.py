"""K1 to K12: users' questions about ``torch.nn.DataParallel``, and the behaviour they need."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from dpbench.parallel import DataParallel, Policy, chunk_weights
from tests.parallel.models import Call, mlp, normed
from tests.parallel.oracle import Chunked, assert_grads, assert_same_step


def on(lanes, dispatch="sequence"):
    return lambda base: DataParallel(base, ["cpu"] * lanes, policy=Policy(dispatch=dispatch))


def test_k01_only_the_first_chunk_updates_batch_norm(dispatch):
    norm = nn.BatchNorm1d(3, momentum=1.0)
    x = torch.cat([torch.randn(8, 3) * 12 + 7, torch.randn(8, 3) * 5 - 9])
    on(2, dispatch)(norm)(x)
    torch.testing.assert_close(norm.running_mean, x[:8].mean(0))
    torch.testing.assert_close(norm.running_var, x[:8].var(0))
    assert norm.num_batches_tracked == 1


def test_k01_training_with_batch_norm_equals_the_chunked_module(dispatch):
    assert_same_step(normed, on(4, dispatch), torch.randn(16, 5))


@pytest.mark.parametrize("part", [0, 2])
def test_k02_a_submodule_may_be_wrapped_alone(part):
    model = mlp()
    expected = copy.deepcopy(model)
    x = torch.randn(8, 5)
    model[part] = DataParallel(model[part], ["cpu"] * 4)
    model(x).sum().backward()
    expected(x).sum().backward()
    for ours, theirs in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_k03_the_base_may_move_after_wrapping():
    wrapper = on(2)(mlp())
    wrapper(torch.randn(4, 5))
    wrapper.to(torch.float64)
    assert wrapper(torch.randn(4, 5, dtype=torch.float64)).dtype == torch.float64


def test_k03_a_base_elsewhere_is_an_error_naming_both_devices():
    wrapper = on(2)(mlp())
    wrapper.module[2].to("meta")
    with pytest.raises(RuntimeError) as caught:
        wrapper(torch.randn(4, 5))
    assert str(caught.value) == (
        "module must have its parameters and buffers on device cpu (device_ids[0]) "
        "but found one of them on device: meta"
    )


def test_k03_a_buffer_elsewhere_is_an_error_too():
    wrapper = on(2)(nn.BatchNorm1d(5))
    wrapper.module.running_mean = wrapper.module.running_mean.to("meta")
    with pytest.raises(RuntimeError, match="found one of them on device: meta"):
        wrapper(torch.randn(4, 5))


def test_k04_outputs_become_one_and_each_replica_gets_its_share_of_the_gradient(dispatch):
    shares = []

    def forward(self, x):
        x = self.inner(x)
        if x.requires_grad:
            x.register_hook(shares.append)
        return x

    out = on(4, dispatch)(Call(forward, inner=mlp()))(torch.randn(8, 5))
    assert out.shape == (8, 3)
    weights = torch.arange(24.0).view(8, 3)
    loss = (out * weights).sum()
    assert loss.dim() == 0
    loss.backward()
    assert sorted(share[0, 0].item() for share in shares) == [0.0, 6.0, 12.0, 18.0]


@pytest.mark.parametrize("dim", [0, 1])
def test_k04_outputs_are_joined_along_dim(dim):
    x = torch.randn(6, 6)
    out = DataParallel(Call(lambda self, x: x * 2), ["cpu"] * 3, dim=dim)(x)
    torch.testing.assert_close(out, x * 2)


CHANGES = {
    "in place": lambda base: [p.mul_(2) for p in base.parameters()],
    "data": lambda base: [p.data.mul_(2) for p in base.parameters()],
    "data assigned": lambda base: [setattr(p, "data", p.data * 2) for p in base.parameters()],
    "numpy": lambda base: [p.detach().numpy().__imul__(2) for p in base.parameters()],
    "vector": lambda base: vector_to_parameters(parameters_to_vector(base.parameters()) * 2, base.parameters()),
    "load": lambda base: base.load_state_dict({k: v * 2 for k, v in base.state_dict().items()}),
    "load assigned": lambda base: base.load_state_dict({k: v * 2 for k, v in base.state_dict().items()}, assign=True),
    "new parameter": lambda base: setattr(base[0], "weight", nn.Parameter(base[0].weight * 2)),
    "new module": lambda base: base.__setitem__(2, nn.Linear(7, 3)),
    "half the base": lambda base: base.double(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_k05_a_parameter_changed_by_any_route_is_seen_at_the_next_forward(change):
    wrapper = on(4)(mlp())
    x = torch.randn(8, 5)
    wrapper(x).sum().backward()
    with torch.no_grad():
        change(wrapper.module)
    x = x.to(wrapper.module[0].weight.dtype)
    torch.testing.assert_close(wrapper(x), wrapper.module(x))


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_k05_a_fused_step_is_seen_at_the_next_forward(kind):
    wrapper = on(4)(mlp())
    optimizer = getattr(torch.optim, kind)(wrapper.parameters(), lr=0.1, fused=True)
    x = torch.randn(8, 5)
    for _ in range(3):
        torch.testing.assert_close(wrapper(x), wrapper.module(x))
        optimizer.zero_grad()
        wrapper(x).square().sum().backward()
        optimizer.step()


def test_k06_buffers_are_sent_in_every_forward(dispatch):
    base = normed().eval()
    wrapper = on(4, dispatch)(base)
    x = torch.randn(8, 5)
    for _ in range(3):
        base[1].running_mean.add_(1)
        base[1].running_var.data.mul_(2)
        torch.testing.assert_close(wrapper(x), base(x))


def test_k06_a_buffer_written_by_a_later_replica_is_lost():
    base = Call(lambda self, x: x + self.count.add_(1), count=nn.Buffer(torch.zeros(())))
    wrapper = on(4)(base)
    for step in range(1, 4):
        out = wrapper(torch.zeros(4, 1))
        assert out.tolist() == [[step]] * 4
    assert base.count == 3


def test_k07_gradients_are_summed_not_averaged(dispatch):
    base = nn.Linear(1, 1, bias=False)
    on(4, dispatch)(base)(torch.ones(8, 1)).sum().backward()
    assert base.weight.grad.item() == 8


def test_k07_gradients_accumulate_over_backwards():
    base = mlp()
    expected = Chunked(copy.deepcopy(base), 4)
    wrapper, x = on(4)(base), torch.randn(8, 5)
    for _ in range(2):
        wrapper(x).sum().backward()
    (2 * expected(x).sum()).backward()
    assert_grads(base, expected.grads())


def test_k08_forward_may_return_result_and_loss():
    def forward(self, x, target):
        result = self.inner(x)
        return result, (result - target).square().mean()

    wrapper = on(4)(Call(forward, inner=mlp()))
    x, target = torch.randn(8, 5), torch.randn(8, 3)
    with pytest.warns(UserWarning, match="Was asked to gather along dimension 0, but all input tensors were scalars"):
        result, losses = wrapper(x, target)
    assert result.shape == (8, 3)
    assert losses.shape == (4,)
    torch.testing.assert_close(losses.mean(), (result - target).square().mean())


@pytest.mark.filterwarnings("ignore:Was asked to gather")
def test_k08_chunk_weights_give_the_exact_mean_of_unequal_chunks():
    wrapper = on(4)(Call(lambda self, x: x.mean()))
    x = torch.randn(9)
    losses = wrapper(x)
    assert losses.shape == (3,)
    assert not torch.isclose(wrapper(x[:7]).mean(), x[:7].mean())
    torch.testing.assert_close((losses * chunk_weights(9, 4)).sum(), x.mean())
    torch.testing.assert_close((wrapper(x[:7]) * chunk_weights(7, ["cpu"] * 4)).sum(), x[:7].mean())


def test_k08_chunk_weights_of_nothing_is_an_error():
    with pytest.raises(ValueError, match="batch is 0 and devices 2"):
        chunk_weights(0, 2)


def test_k09_any_arguments_are_taken_apart_and_other_objects_passed_by_reference():
    seen = []
    marker = object()

    def forward(self, x, pair, *, table, nothing, text):
        seen.append((x.shape, pair[0].shape, pair[1] is marker, table["y"].shape, nothing, text))
        return x

    x = torch.randn(4, 2)
    on(2)(Call(forward))(x, (x, marker), table={"y": x}, nothing=None, text="abcd")
    assert seen == [((2, 2), (2, 2), True, (2, 2), None, "abcd")] * 2


def test_k10_fewer_items_than_devices_is_fewer_replicas(dispatch):
    seen = []

    def forward(self, x):
        seen.append(len(x))
        return self.inner(x)

    wrapper = on(4, dispatch)(Call(forward, inner=mlp()))
    for batch, chunks in [(1, [1]), (2, [1, 1]), (9, [3, 3, 3]), (8, [2, 2, 2, 2])]:
        seen.clear()
        x = torch.randn(batch, 5)
        torch.testing.assert_close(wrapper(x), wrapper.module.inner(x))
        assert seen == chunks


def test_k11_a_plain_attribute_written_in_forward_is_lost(dispatch):
    def forward(self, x):
        assert not hasattr(self, "last")  # of the forward before
        self.calls += 1
        self.last = x
        self.inner.mark = "written"
        return x * self.calls

    base = Call(forward, calls=0, inner=nn.ReLU())
    wrapper = on(4, dispatch)(base)
    for _ in range(3):
        assert wrapper(torch.ones(4, 1)).tolist() == [[1]] * 4
    assert base.calls == 0
    assert not hasattr(base, "last")
    assert not hasattr(base.inner, "mark")


def test_k11_members_that_a_forward_registers_are_lost_too():
    def forward(self, x):
        assert not dict(self.inner.named_buffers())
        assert not dict(self.inner.named_children())
        self.inner.register_buffer("extra", x)
        self.inner.add_module("child", nn.ReLU())
        self.inner.register_parameter("weight", nn.Parameter(x.detach()))
        return x

    base = Call(forward, inner=nn.Identity())
    wrapper = on(2)(base)
    for _ in range(3):
        wrapper(torch.randn(4))
    assert not base.inner.state_dict()
    assert not dict(base.inner.named_children())


def test_k11_an_in_place_write_on_the_first_replica_is_kept(dispatch):
    def forward(self, x):
        with torch.no_grad():
            self.weight.add_(len(x))
        self.total.add_(x.sum())
        return x

    base = Call(forward, weight=nn.Parameter(torch.zeros(2)), total=nn.Buffer(torch.zeros(())))
    on(2, dispatch)(base)(torch.tensor([1.0, 2.0, 3.0]))
    assert base.weight.tolist() == [2, 2]
    assert base.total == 3


def test_k12_hooks_run_once_per_replica(dispatch):
    base = mlp()
    calls = []
    base[0].register_forward_pre_hook(lambda *_: calls.append("before"))
    base[0].register_forward_hook(lambda *_: calls.append("after"))
    base[0].register_full_backward_hook(lambda *_: calls.append("backward"))
    on(4, dispatch)(base)(torch.randn(8, 5, requires_grad=True)).sum().backward()
    assert sorted(calls) == ["after"] * 4 + ["backward"] * 4 + ["before"] * 4


def test_k12_hooks_of_one_replica_run_in_order(dispatch):
    base = mlp()
    order = {}
    for i, layer in enumerate(base):
        layer.register_forward_hook(lambda m, args, out, i=i: order.setdefault(len(args[0]), []).append(i))
    on(2, dispatch)(base)(torch.randn(5, 5))
    assert order == {3: [0, 1, 2], 2: [0, 1, 2]}


def test_k12_a_hook_added_or_removed_takes_effect_at_the_next_forward():
    base = mlp()
    wrapper, calls = on(4)(base), []
    wrapper(torch.randn(8, 5))
    handle = base[0].register_forward_hook(lambda *_: calls.append(1))
    wrapper(torch.randn(8, 5))
    handle.remove()
    wrapper(torch.randn(8, 5))
    assert len(calls) == 4
