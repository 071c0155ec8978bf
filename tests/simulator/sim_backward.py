"""Backward operators run on the stream of their forward, and every wait is needed."""

import gc
import weakref
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from dpbench.records.recording import Operator
from dpbench.simulator import RaceError, autograd, recording
from dpbench.simulator.simulation import Simulation

sim = torch.get_device_module("sim")


class Exp(torch.autograd.Function):
    """A custom autograd function, like those of `dpbench.parallel`."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, gradient):
        (y,) = ctx.saved_tensors
        assert sim.current_stream(0) == sim.default_stream(0) or sim.current_device() == 0
        return gradient * y


def _double(gradient):
    gradient.mul_(2)


@pytest.fixture
def weight():
    return torch.ones(100, device="sim:0", requires_grad=True)


def on_side_stream(weight, function):
    """Return a new side stream, and `function(weight)` computed there with correct waits."""
    side, main = sim.Stream(0), sim.current_stream(0)
    side.wait_stream(main)
    with sim.stream(side):
        y = function(weight)
    main.wait_stream(side)
    y.record_stream(main)
    return side, y


def streams_of(recording, node):
    return {event.stream for event in recording.events if isinstance(event, Operator) and event.node == node}


@pytest.mark.parametrize(("function", "node"), [(torch.exp, "ExpBackward0"), (Exp.apply, "ExpBackward")])
def test_a_backward_operator_belongs_to_the_stream_of_its_forward(weight, function, node):
    side, y = on_side_stream(weight, function)
    loss = (y * 2).sum()
    with recording() as recorded:
        loss.backward()
    assert streams_of(recorded, node) == {side.stream_id}
    assert streams_of(recorded, "MulBackward0") == {sim.default_stream(0).stream_id}


def test_the_backward_of_a_custom_function_belongs_to_the_stream_current_at_its_end(weight):
    class OnSide(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return on_side_stream(x, torch.exp)[1]

        @staticmethod
        def backward(ctx, gradient):
            seen.append(sim.current_stream(0))
            return gradient * 2

    seen = []
    OnSide.apply(weight).sum().backward()
    assert seen == [sim.default_stream(0)]


@pytest.mark.parametrize("function", [torch.exp, Exp.apply])
def test_gradients_are_ready_for_the_caller(weight, function):
    for _ in range(3):
        _, y = on_side_stream(weight, function)
        (y * 2).sum().backward()
        weight.grad.add_(0)
        (gradient,) = torch.autograd.grad((on_side_stream(weight, function)[1] * 2).sum(), weight)
        gradient.add_(0)


def test_without_the_waits_between_nodes_it_races(weight, monkeypatch):
    _, y = on_side_stream(weight, torch.exp)
    loss = (y * 2).sum()
    monkeypatch.setattr(Simulation, "wait", lambda *_: None)
    with pytest.raises(RaceError, match=r"write-read race: aten.mul.Tensor on sim:0 stream \d+"):
        loss.backward()


def test_without_the_final_join_it_races(weight, monkeypatch):
    _, y = on_side_stream(weight, torch.exp)
    loss = (y * 2).sum()
    monkeypatch.setattr(autograd, "_join", lambda _: None)
    loss.backward()
    with pytest.raises(RaceError, match=r"race: aten.add_"):
        weight.grad.add_(1)


def test_a_gradient_from_a_stream_without_a_later_wait_races(weight):
    class Careless(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            side, main = sim.Stream(0), sim.current_stream(0)
            side.wait_stream(main)
            with sim.stream(side):
                result = gradient * 2
            if ctx.waits:
                main.wait_stream(side)
                gradient.record_stream(side)
                result.record_stream(main)
            return result

    for waits in (True, False):
        y = Careless.apply(weight * 1)
        y.grad_fn.waits = waits
        if waits:
            y.sum().backward()
        else:
            with pytest.raises(RaceError, match=r"write-read race: aten.mul.Tensor"):
                y.sum().backward()


def test_gradients_from_two_streams_are_added_after_both(weight):
    _, a = on_side_stream(weight, torch.exp)
    _, b = on_side_stream(weight, torch.sin)
    c = weight * 3
    with recording() as recorded:
        (a + b + c).sum().backward()
    assert weight.grad is not None
    assert any(isinstance(e, Operator) and e.name.startswith("aten.add") for e in recorded.events)


def test_hooks_of_the_user_run_after_their_gradient(weight):
    _, y = on_side_stream(weight, torch.exp)
    y.register_hook(lambda gradient: gradient * 2)
    weight.register_hook(lambda gradient: gradient * 2)
    weight.register_post_accumulate_grad_hook(lambda w: _double(w.grad))
    y.sum().backward()
    assert weight.grad[0].item() == pytest.approx(8 * torch.e, rel=1e-6)


@pytest.mark.parametrize("follow", [lambda g: g.detach(), lambda g: g.clone().detach(), lambda g: g[:50].detach() * 2])
def test_what_a_hook_computes_is_on_the_stream_of_its_node(weight, follow):
    seen = []
    side, y = on_side_stream(weight, torch.exp)
    weight.register_hook(lambda gradient: seen.append(sim.current_stream(0)))
    weight.register_hook(lambda gradient: seen.append(follow(gradient).to("cpu")))
    y.grad_fn.register_hook(lambda gradients, _: seen.append((gradients[0].detach() * 2).to("cpu")))
    y.sum().backward()
    assert side in seen
    assert len(seen) == 3


def test_a_hook_on_a_stream_of_its_own_must_wait_for_what_it_reads(weight):
    def hook(gradient, waits=True):
        ones, own = torch.ones_like(weight), sim.Stream(0)
        if waits:
            own.wait_stream(sim.current_stream(0))
        with sim.stream(own):
            ones.mul_(2)
        sim.current_stream(0).wait_stream(own)

    _, y = on_side_stream(weight, torch.exp)
    weight.register_hook(hook)
    y.sum().backward(retain_graph=True)
    weight.register_hook(lambda gradient: hook(gradient, waits=False))
    with pytest.raises(RaceError, match=r"aten.mul_.Tensor .* is not ordered after aten.ones_like"):
        y.sum().backward()


def _boom(gradient):
    raise ValueError("boom")


@pytest.mark.parametrize("in_step", ["a hook", "a race in a hook"])
def test_no_error_outlives_its_step(weight, in_step):
    def racing(gradient):
        other = sim.Stream(0)
        with sim.stream(other):
            weight.data.mul_(2)

    def step():
        x = torch.ones(100, device="sim:0")
        _, y = on_side_stream(weight, lambda weight: x * weight)
        y.sum().backward()

    handle = weight.register_hook(_boom if in_step == "a hook" else racing)
    with pytest.raises(ValueError, match="boom") if in_step == "a hook" else pytest.raises(RaceError, match="mul_"):
        step()
    handle.remove()
    gc.collect()
    for _ in range(3):
        step()


def test_an_allocation_that_raced_does_not_race_again(weight):
    side = sim.Stream(0)
    x = torch.ones(100, device="sim:0")
    side.wait_stream(sim.current_stream(0))
    with sim.stream(side):
        (x * 2).sum()
    del x
    with pytest.raises(RaceError, match="an allocation on"):
        torch.ones(100, device="sim:0")
    torch.ones(100, device="sim:0")


def test_a_backward_across_devices_is_ordered(weight):
    side = sim.Stream(1)
    moved = weight.to("sim:1")
    side.wait_stream(sim.current_stream(1))
    with sim.stream(side):
        y = moved.exp()
    sim.current_stream(1).wait_stream(side)
    y.to("sim:0").sum().backward()
    assert weight.grad.sum().item() == pytest.approx(100 * torch.e, rel=1e-6)


def test_a_gradient_is_kept_for_the_stream_of_the_node_that_reads_it(weight):
    """The backward of ``sin`` allocates right after that of ``exp``, on a side stream, frees."""
    early = (weight * 3).sin()
    _, y = on_side_stream(weight, torch.exp)
    (y * 2 + early).sum().backward()


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_gradient_is_not_kept_for_the_stream_that_it_came_from(weight, is_kept):
    """The sum has memory of the main stream, and its node and the next one run on the side stream."""

    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            with sim.stream(main):
                result = torch.zeros(100, device="sim:0")
            side.wait_stream(main)
            if is_kept:
                result.record_stream(side)
            return result.add_(gradient)

    main = sim.current_stream(0)
    early = (weight * 3).sin()  # its backward allocates right after those of the side stream
    side, y = on_side_stream(weight, lambda x: Sum.apply(x.exp()))
    with nullcontext() if is_kept else pytest.raises(RaceError, match=r"race: an allocation on sim:0 default stream"):
        (y * 2 + early).sum().backward()


def test_a_node_runs_on_default_streams_for_any_current_streams_of_the_caller(weight):
    class Look(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, gradient):
            seen.extend((sim.current_device(), sim.current_stream(0), sim.current_stream(1)))
            return gradient

    seen = []
    loss = Look.apply(weight).sum()
    side, other = sim.Stream(0), sim.Stream(1)
    side.wait_stream(sim.current_stream(0))
    with sim.stream(side), sim.stream(other):
        loss.backward()
        assert (sim.current_device(), sim.current_stream(0), sim.current_stream(1)) == (1, side, other)
        weight.grad.add_(0)
    assert seen == [0, sim.default_stream(0), sim.default_stream(1)]


def test_checkpointing_nests_one_backward_in_another(weight):
    for use_reentrant in (True, False):
        weight.grad = None
        y = torch.utils.checkpoint.checkpoint(lambda w: w.exp().sin(), weight, use_reentrant=use_reentrant)
        y.sum().backward()
        expected = torch.full((100,), torch.e * torch.cos(torch.tensor(torch.e)))
        torch.testing.assert_close(weight.grad.cpu(), expected)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_repeats_the_random_numbers_of_the_forward(reentrant):
    for device in ("sim:0", "sim:1"):
        x = torch.ones(64, device=device, requires_grad=True)
        output = torch.utils.checkpoint.checkpoint(nn.functional.dropout, x, use_reentrant=reentrant)
        torch.rand(3, device=device)
        output.sum().backward()
        assert torch.equal(x.grad, output)


def test_zeros_that_torch_makes_without_memory_have_simulated_memory():
    x = torch.tensor([2.0, -3.0]).to("sim:0").requires_grad_()
    (slope,) = torch.autograd.grad(x.abs().square().sum(), x, create_graph=True)
    slope.square().sum().backward()
    assert x.grad.tolist() == [16.0, -24.0]


def test_a_double_backward_runs_on_the_streams_of_the_first(weight):
    """This includes the operators whose gradients the engine added on another stream."""
    side, y = on_side_stream(weight, torch.exp)
    (slope,) = torch.autograd.grad((y.sin() + y.cos()).sum(), weight, create_graph=True)
    with recording() as recorded:
        slope.sum().backward()
    assert streams_of(recorded, "ExpBackward0") == {side.stream_id}
    products = [
        event.stream
        for event in recorded.events
        if isinstance(event, Operator) and event.name == "aten.mul.Tensor" and event.node == "MulBackward0"
    ]
    # The product in the backward of exp has two factors, on the side stream. Those of sin and cos have one each.
    assert sorted(products) == [sim.default_stream(0).stream_id] * 2 + [side.stream_id] * 2


def test_an_error_of_a_checkpoints_function_in_the_backward_is_raised(weight):
    def function(x):
        if called:
            raise KeyError("failed")
        called.append(x)
        return x.exp().sin()

    called = []
    y = torch.utils.checkpoint.checkpoint(function, weight, use_reentrant=False)
    with pytest.raises(KeyError, match="failed"):
        y.sum().backward()


def test_an_error_of_an_operator_in_the_backward_is_raised(weight):
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient + torch.ones(100, device="sim:1")

    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        Wrong.apply(weight).sum().backward()
    assert sim.current_device() == 0
    (weight * 2).sum().backward()


def test_an_error_in_a_node_of_torch_is_raised_and_later_backwards_work(weight):
    y = weight.exp()
    side = sim.Stream(0)
    gradient = torch.ones_like(weight)
    for _ in range(2):
        side.wait_stream(sim.current_stream(0))
        with sim.stream(side):
            y.data.zero_()
        with pytest.raises(
            RaceError, match=r"write-read race: aten.mul.Tensor on sim:0 default stream .* aten.zero_.default"
        ):
            y.backward(gradient, retain_graph=True)
    sim.current_stream(0).wait_stream(side)
    y.backward(gradient)
    assert weight.grad.sum().item() == 0


def test_nodes_on_the_cpu_are_not_simulated(weight):
    x = torch.ones(100, requires_grad=True)
    y = (x * 2).to("sim:1").exp().to("cpu") * 3
    y.sum().backward()
    torch.testing.assert_close(x.grad, torch.full((100,), 6 * torch.e**2))


def test_no_graph_is_kept_alive():
    model = nn.Linear(4, 4).to("sim:0")
    while gc.collect():
        pass
    gc.disable()
    try:
        y = model(torch.ones(2, 4, device="sim:0")).relu()
        alive = weakref.ref(y)
        y.sum().backward()
        del y
        left = alive() is not None, gc.collect()
    finally:
        gc.enable()
    assert left == (False, 0)


class OnTwoDevices(torch.autograd.Function):
    """Outputs on both devices, so the node belongs to sim:0; it sends the gradient of sim:1 on a stream of its own."""

    waits_for_hooks = False

    @staticmethod
    def forward(ctx, x):
        return x.clone(), x.to("sim:1")

    @staticmethod
    def backward(ctx, here, there):
        own = sim.Stream(1)
        if OnTwoDevices.waits_for_hooks:
            own.wait_stream(sim.default_stream(1))
        with sim.stream(own):
            sent = there.to("sim:0")
        sim.current_stream(0).wait_stream(own)
        return here + sent


@pytest.mark.parametrize("is_waited_for", [True, False])
def test_no_node_waits_for_a_hook_on_another_device(is_waited_for, monkeypatch):
    monkeypatch.setattr(OnTwoDevices, "waits_for_hooks", is_waited_for)
    x = torch.randn(4).to("sim:0").requires_grad_()
    here, there = OnTwoDevices.apply(x)
    there.register_hook(lambda gradient: gradient * 2)
    loss = here.sum() + there.sum().to("sim:0")
    with nullcontext() if is_waited_for else pytest.raises(RaceError):
        loss.backward()
        assert x.grad.tolist() == [3.0] * 4


def test_gradients_on_another_device_than_their_consumer_are_added_after_both():
    x = torch.ones(4, device="sim:0", requires_grad=True)
    here, there = OnTwoDevices.apply(x)
    side, main = sim.Stream(1), sim.default_stream(1)
    side.wait_stream(main)
    with sim.stream(side):
        doubled, tripled = there * 2, there * 3
    main.wait_stream(side)
    with recording() as recorded:
        (here.sum() + (doubled + tripled).sum().to("sim:0")).backward()
    adds = [e for e in recorded.events if isinstance(e, Operator) and e.name.startswith("aten.add") and e.device == 1]
    assert [e.stream for e in adds] == [main.stream_id, side.stream_id]  # the forward adds on the default stream
