"""K1 to K12 on several devices, as `test_seeds.py` on CPU lanes."""

import copy

import pytest
import torch
from torch import nn

from dpbench.parallel import DataParallel, Policy, chunk_weights
from tests.parallel.models import Call, mlp, normed
from tests.parallel.oracle import Chunked

FOUR = [f"sim:{i}" for i in range(4)]


def on(devices, base, dispatch="sequence"):
    return DataParallel(base.to("sim:0"), FOUR[:devices], policy=Policy(dispatch=dispatch))


def test_k01_only_the_first_chunk_updates_batch_norm(dispatch):
    base = normed()
    expected, x = Chunked(copy.deepcopy(base), 4), torch.randn(16, 5)
    wrapper = on(4, base, dispatch)
    for _ in range(2):
        wrapper(x)
        expected(x)
    for ours, theirs in zip(base.buffers(), expected.base.buffers(), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs)


def test_k02_a_submodule_may_be_wrapped_alone(dispatch):
    model = mlp()
    expected, x = copy.deepcopy(model), torch.randn(8, 5)
    model = model.to("sim:0")
    model[2] = on(4, model[2], dispatch)  # not the first layer, so that gradients go through it
    model(x.to("sim:0")).square().sum().backward()
    expected(x).square().sum().backward()
    for ours, theirs in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad)


def test_k03_the_base_may_move_after_wrapping_and_has_to():
    base, x = mlp(), torch.randn(8, 5)
    expected = base(x)
    wrapper = DataParallel(base, FOUR)
    with pytest.raises(RuntimeError, match=r"on device sim:0 \(device_ids\[0\]\) but found .* on device: cpu"):
        wrapper(x)
    torch.testing.assert_close(wrapper.to("sim:0")(x).cpu(), expected)


@pytest.mark.parametrize("dim", [0, 1])
def test_k04_outputs_become_one_and_each_replica_gets_its_share_of_the_gradient(dim, dispatch):
    shares = {}

    def forward(self, x):
        x = x * self.factor
        x.register_hook(lambda grad, device=x.device.index: shares.update({device: grad.cpu()}))
        return x

    base = Call(forward, factor=nn.Parameter(torch.ones(()))).to("sim:0")
    x, weights = torch.randn(8, 8), torch.arange(64.0).view(8, 8)
    out = DataParallel(base, FOUR, dim=dim, policy=Policy(dispatch=dispatch))(x)
    assert out.device == torch.device("sim:0")
    torch.testing.assert_close(out.cpu(), x)
    (out * weights.to("sim:0")).sum().backward()
    for device, share in enumerate(weights.chunk(4, dim)):
        torch.testing.assert_close(shares[device], share)


CHANGES = {
    "in place": lambda base: [p.mul_(2) for p in base.parameters()],
    "data": lambda base: [p.data.mul_(2) for p in base.parameters()],
    "load": lambda base: base.load_state_dict({k: v * 2 for k, v in base.state_dict().items()}),
    "load assigned": lambda base: base.load_state_dict({k: v * 2 for k, v in base.state_dict().items()}, assign=True),
    "new parameter": lambda base: setattr(base[0], "weight", nn.Parameter(base[0].weight * 2)),
    "new module": lambda base: base.__setitem__(2, nn.Linear(7, 3, device="sim:0")),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_k05_a_parameter_changed_by_any_route_is_seen_at_the_next_forward(change):
    wrapper, x = on(4, mlp()), torch.randn(8, 5)
    wrapper(x).sum().backward()
    with torch.no_grad():
        change(wrapper.module)
    torch.testing.assert_close(wrapper(x).cpu(), wrapper.module(x.to("sim:0")).cpu())


def test_k06_buffers_are_sent_in_every_forward(dispatch):
    base, x = normed().eval(), torch.randn(8, 5)
    wrapper = on(4, base, dispatch)
    for _ in range(3):
        base[1].running_mean.add_(1)
        base[1].running_var.data.mul_(2)
        torch.testing.assert_close(wrapper(x).cpu(), base(x.to("sim:0")).cpu())


def test_k07_gradients_are_summed_not_averaged(dispatch):
    base = nn.Linear(1, 1, bias=False)
    wrapper = on(4, base, dispatch)
    for total in (8, 16):  # over devices, and over backwards
        wrapper(torch.ones(8, 1)).sum().backward()
        assert base.weight.grad.item() == total


def test_k08_forward_may_return_result_and_loss():
    def forward(self, x, target):
        result = self.inner(x)
        return result, (result - target).square().mean()

    wrapper, x, target = on(4, Call(forward, inner=mlp())), torch.randn(7, 5), torch.randn(7, 3)
    with pytest.warns(UserWarning, match="Was asked to gather along dimension 0, but all input tensors were scalars"):
        result, losses = wrapper(x, target)
    assert (result.shape, losses.shape) == ((7, 3), (4,))
    mean = (losses.cpu() * chunk_weights(7, FOUR)).sum()
    torch.testing.assert_close(mean, (result.cpu() - target).square().mean())


def test_k09_inputs_may_be_anywhere_and_anything(dispatch):
    seen, marker = {}, object()

    def forward(self, x, pair, *, table, text):
        everything = (x, pair[0], table["y"])
        seen[x.device.index] = ({t.device.index for t in everything}, pair[1] is marker, text)
        return sum(everything)

    x = torch.randn(8, 2)
    wrapper = on(4, Call(forward), dispatch)
    out = wrapper(x, (x.to("sim:3"), marker), table={"y": x.to("sim:0")}, text="abcd")
    assert seen == {i: ({i}, True, "abcd") for i in range(4)}
    torch.testing.assert_close(out.cpu(), 3 * x)


def test_k10_fewer_items_than_devices_is_fewer_replicas(dispatch):
    seen = []

    def forward(self, x):
        seen.append((x.device.index, len(x)))
        return self.inner(x)

    wrapper = on(4, Call(forward, inner=mlp()), dispatch)
    for batch, chunks in [(1, [1]), (2, [1, 1]), (9, [3, 3, 3]), (8, [2, 2, 2, 2])]:
        seen.clear()
        assert wrapper(torch.randn(batch, 5)).shape == (batch, 3)
        assert sorted(seen) == list(enumerate(chunks))


def test_k11_attributes_are_lost_and_writes_on_the_first_device_kept(dispatch):
    def forward(self, x):
        self.calls += 1
        with torch.no_grad():
            self.weight.add_(len(x))
        self.total.add_(x.sum())
        return x * self.calls

    base = Call(forward, calls=0, weight=nn.Parameter(torch.zeros(2)), total=nn.Buffer(torch.zeros(())))
    wrapper = on(2, base, dispatch)
    for step in (1, 2):
        assert wrapper(torch.tensor([1.0, 2.0, 3.0])).tolist() == [1, 2, 3]
        assert (base.calls, base.weight.tolist(), base.total.item()) == (0, [2 * step] * 2, 3 * step)


def test_k12_hooks_run_once_per_replica_in_order_on_its_device(dispatch):
    base, order = mlp(), {}
    wrapper = on(4, base, dispatch)
    wrapper(torch.randn(8, 5))

    def note(what):
        return lambda _module, _args, out: order.setdefault(out[0].device.index, []).append(what)

    for i, layer in enumerate(base):
        layer.register_forward_hook(note(i))
        layer.register_full_backward_hook(note(-i))
    wrapper(torch.randn(8, 5)).sum().backward()
    assert order == {device: [0, 1, 2, -2, -1, 0] for device in range(4)}
