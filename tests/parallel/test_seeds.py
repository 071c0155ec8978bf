"""Users' questions about ``torch.nn.DataParallel``, and the behaviour they need."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from dpbench.parallel import DataParallel, chunk_weights
from tests.parallel.models import Call, mlp, normed
from tests.parallel.on_lanes import FIRST, KIND, assert_close, devices, wrap


def test_k01_only_the_first_chunk_updates_batch_norm(dispatch):
    norm = nn.BatchNorm1d(3, momentum=1.0)
    x = torch.cat([torch.randn(8, 3) * 12 + 7, torch.randn(8, 3) * 5 - 9])
    wrap(norm, 2, dispatch=dispatch)(x)
    assert_close(norm.running_mean, x[:8].mean(0))
    assert_close(norm.running_var, x[:8].var(0))
    assert norm.num_batches_tracked == 1


@pytest.mark.parametrize("part", [0, 2])
def test_k02_a_submodule_may_be_wrapped_alone(part, dispatch):
    model, x = mlp(), torch.randn(8, 5)
    expected = copy.deepcopy(model)
    model.to(FIRST)[part] = wrap(model[part], dispatch=dispatch)
    model(x.to(FIRST)).square().sum().backward()
    expected(x).square().sum().backward()
    for ours, theirs in zip(model.parameters(), expected.parameters(), strict=True):
        assert_close(ours.grad, theirs.grad)


def test_k03_the_base_may_move_after_wrapping():
    wrapper = DataParallel(mlp(), devices(2))
    wrapper.to(FIRST)(torch.randn(4, 5))
    wrapper.to(torch.float64)
    assert wrapper(torch.randn(4, 5, dtype=torch.float64)).dtype == torch.float64


def test_k03_a_base_elsewhere_is_an_error_naming_both_devices():
    wrapper = wrap(mlp(), 2)
    wrapper.module[2].to("meta")
    with pytest.raises(RuntimeError) as caught:
        wrapper(torch.randn(4, 5))
    assert str(caught.value) == (
        f"module must have its parameters and buffers on device {FIRST} (device_ids[0]) "
        "but found one of them on device: meta"
    )


@pytest.mark.parametrize("dim", [0, 1])
def test_k04_outputs_become_one_and_each_replica_gets_its_share_of_the_gradient(dim, dispatch):
    shares = []

    def forward(self, x):
        x = x * self.factor
        x.register_hook(lambda grad: shares.append(grad.cpu()))
        return x

    base = Call(forward, factor=nn.Parameter(torch.ones(())))
    x, weights = torch.randn(8, 8), torch.arange(64.0).view(8, 8)
    wrapper = wrap(base, dispatch=dispatch)
    wrapper.dim = dim
    out = wrapper(x)
    assert out.device == FIRST
    assert_close(out, x)
    (out * weights.to(FIRST)).sum().backward()
    for share, chunk in zip(sorted(shares, key=lambda share: share[0, 0]), weights.chunk(4, dim), strict=True):
        assert_close(share, chunk)


CHANGES = {
    "in place": lambda base: [p.mul_(2) for p in base.parameters()],
    "data": lambda base: [p.data.mul_(2) for p in base.parameters()],
    "data assigned": lambda base: [setattr(p, "data", p.data * 2) for p in base.parameters()],
    "vector": lambda base: vector_to_parameters(parameters_to_vector(base.parameters()) * 2, base.parameters()),
    "load": lambda base: base.load_state_dict({k: v * 2 for k, v in base.state_dict().items()}),
    "load assigned": lambda base: base.load_state_dict({k: v * 2 for k, v in base.state_dict().items()}, assign=True),
    "new parameter": lambda base: setattr(base[0], "weight", nn.Parameter(base[0].weight * 2)),
    "new module": lambda base: base.__setitem__(2, nn.Linear(7, 3, device=FIRST)),
    "half the base": lambda base: base.double(),
}
if KIND == "cpu":
    CHANGES["numpy"] = lambda base: [p.detach().numpy().__imul__(2) for p in base.parameters()]


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_k05_a_parameter_changed_by_any_route_is_seen_at_the_next_forward(change):
    wrapper = wrap(mlp())
    x = torch.randn(8, 5)
    wrapper(x).sum().backward()
    with torch.no_grad():
        change(wrapper.module)
    x = x.to(wrapper.module[0].weight.dtype)
    assert_close(wrapper(x), wrapper.module(x.to(FIRST)))


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_k05_a_fused_step_is_seen_at_the_next_forward(kind):
    wrapper = wrap(mlp())
    optimizer = getattr(torch.optim, kind)(wrapper.parameters(), lr=0.1, fused=True)
    x = torch.randn(8, 5)
    for _ in range(3):
        assert_close(wrapper(x), wrapper.module(x))
        optimizer.zero_grad()
        wrapper(x).square().sum().backward()
        optimizer.step()


def test_k06_buffers_are_sent_in_every_forward(dispatch):
    base, x = normed().eval(), torch.randn(8, 5)
    wrapper = wrap(base, dispatch=dispatch)
    for _ in range(3):
        base[1].running_mean.add_(1)
        base[1].running_var.data.mul_(2)
        assert_close(wrapper(x), base(x.to(FIRST)))


def test_k06_a_buffer_written_by_a_later_replica_is_lost():
    base = Call(lambda self, x: x + self.count.add_(1), count=nn.Buffer(torch.zeros(())))
    wrapper = wrap(base)
    for step in range(1, 4):
        assert wrapper(torch.zeros(4, 1)).tolist() == [[step]] * 4
    assert base.count == 3


def test_k07_gradients_are_summed_over_lanes_and_backwards_not_averaged(dispatch):
    base = nn.Linear(1, 1, bias=False)
    wrapper = wrap(base, dispatch=dispatch)
    for total in (8, 16):
        wrapper(torch.ones(8, 1)).sum().backward()
        assert base.weight.grad.item() == total


def test_k08_forward_may_return_result_and_loss():
    def forward(self, x, target):
        result = self.inner(x)
        return result, (result - target).square().mean()

    wrapper, x, target = wrap(Call(forward, inner=mlp())), torch.randn(7, 5), torch.randn(7, 3)
    with pytest.warns(UserWarning, match="Was asked to gather along dimension 0, but all input tensors were scalars"):
        result, losses = wrapper(x, target)
    assert (result.shape, losses.shape) == ((7, 3), (4,))
    mean = (losses.cpu() * chunk_weights(7, devices())).sum()
    assert_close(mean, (result.cpu() - target).square().mean())


@pytest.mark.filterwarnings("ignore:Was asked to gather")
def test_k08_chunk_weights_give_the_exact_mean_of_unequal_chunks():
    wrapper, x = wrap(Call(lambda self, x: x.mean())), torch.randn(9)
    losses = wrapper(x).cpu()
    assert losses.shape == (3,)
    assert not torch.isclose(wrapper(x[:7]).cpu().mean(), x[:7].mean())
    assert_close((losses * chunk_weights(9, 4)).sum(), x.mean())


def test_k08_chunk_weights_of_nothing_is_an_error():
    with pytest.raises(ValueError, match="batch is 0 and devices 2"):
        chunk_weights(0, 2)


def test_k09_any_arguments_are_taken_apart_and_other_objects_passed_by_reference(dispatch):
    seen, marker = [], object()

    def forward(self, x, pair, *, table, nothing, text):
        tensors = (x, pair[0], table["y"])
        seen.append((x.device.index, {(t.device, t.shape) for t in tensors}, pair[1] is marker, nothing, text))
        return sum(tensors)

    x, lanes = torch.randn(4, 2), devices(2)
    out = wrap(Call(forward), 2, dispatch=dispatch)(
        x, (x.to(lanes[1]), marker), table={"y": x.to(FIRST)}, nothing=None, text="abcd"
    )
    places = map(torch.device, lanes)
    assert sorted(seen, key=str) == [(place.index, {(place, (2, 2))}, True, None, "abcd") for place in places]
    assert_close(out, 3 * x)


def test_k10_fewer_items_than_devices_is_fewer_replicas(dispatch):
    seen = []

    def forward(self, x):
        seen.append(len(x))
        return self.inner(x)

    wrapper = wrap(Call(forward, inner=mlp()), dispatch=dispatch)
    for batch, chunks in [(1, [1]), (2, [1, 1]), (9, [3, 3, 3]), (8, [2, 2, 2, 2])]:
        seen.clear()
        x = torch.randn(batch, 5)
        assert_close(wrapper(x), wrapper.module.inner(x.to(FIRST)))
        assert seen == chunks


def test_k11_a_plain_attribute_written_in_forward_is_lost(dispatch):
    def forward(self, x):
        assert not hasattr(self, "last")  # of the forward before
        self.calls += 1
        self.last = x
        self.inner.mark = "written"
        return x * self.calls

    base = Call(forward, calls=0, inner=nn.ReLU())
    wrapper = wrap(base, dispatch=dispatch)
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
    wrapper = wrap(base, 2)
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
    wrapper = wrap(base, 2, dispatch=dispatch)
    for step in (1, 2):
        wrapper(torch.tensor([1.0, 2.0, 3.0]))
        assert (base.weight.tolist(), base.total.item()) == ([2 * step] * 2, 3 * step)


def test_k12_hooks_run_once_per_replica(dispatch):
    base = mlp()
    calls = []
    base[0].register_forward_pre_hook(lambda *_: calls.append("before"))
    base[0].register_forward_hook(lambda *_: calls.append("after"))
    base[0].register_full_backward_hook(lambda *_: calls.append("backward"))
    wrap(base, dispatch=dispatch)(torch.randn(8, 5, requires_grad=True)).sum().backward()
    assert sorted(calls) == ["after"] * 4 + ["backward"] * 4 + ["before"] * 4


def test_k12_hooks_of_one_replica_run_in_order_on_its_device(dispatch):
    base, order = mlp(), {}
    for i, layer in enumerate(base):
        layer.register_forward_hook(lambda m, args, out, i=i: order.setdefault(key(args), []).append(i))

    def key(args):
        return len(args[0]), args[0].device

    wrap(base, 2, dispatch=dispatch)(torch.randn(5, 5))
    assert order == {(size, torch.device(name)): [0, 1, 2] for size, name in zip((3, 2), devices(2), strict=True)}


def test_k12_a_hook_added_or_removed_takes_effect_at_the_next_forward():
    base = mlp()
    wrapper, calls = wrap(base), []
    wrapper(torch.randn(8, 5))
    handle = base[0].register_forward_hook(lambda *_: calls.append(1))
    wrapper(torch.randn(8, 5))
    handle.remove()
    wrapper(torch.randn(8, 5))
    assert len(calls) == 4
