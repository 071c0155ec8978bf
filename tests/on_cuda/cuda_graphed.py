"""``Policy(graphs=True)``: every step equals the eager one, as a graph or with a reason to run eagerly."""

import copy
import functools
import gc
import itertools
import threading
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import ClassVar

import pytest
import torch
from torch import nn
from torch.autograd import Function
from torch.nn import functional

from dpbench.parallel import (
    DataParallel,
    Policy,
    broadcast,
    capture,
    gradient_nodes,
    graph_check,
    graph_waits,
    graphs,
    reduce,
)
from dpbench.parallel.module import ModelWithLoss, with_loss
from dpbench.parallel.replicas import SMALL_BYTES
from tests.cuda_stand_in import control
from tests.gpu.device import synchronize
from tests.parallel.models import Call

COUNT = torch.cuda.device_count()
DEVICES = list(range(COUNT)) if COUNT > 1 else [0, 0]
SMALL = {"bucket_bytes": 2000, "first_bucket_bytes": 500, "dispatch": "sequence"}
STEPS = graphs.WARM_UPS + 4


class Model(nn.Module):
    """A model with what graphs may get wrong: statistics, random numbers, a tied and an unused weight, two outputs."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.norm = nn.BatchNorm1d(16)
        self.wide, self.drop, self.unused = nn.Linear(16, 16), nn.Dropout(0.3), nn.Linear(3, 3)
        self.frozen = nn.Linear(16, 16).requires_grad_(False)
        self.head = nn.Linear(16, 20, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens, *, scale=1.0):
        x = self.norm(self.embed(tokens).mean(1))
        x = self.drop(functional.relu(self.wide(x))) * scale
        return {"logits": self.head(self.frozen(x)), "norm": x.norm(dim=1).detach()}


class Keeps(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = mlp()
        self.scale = torch.ones((), device="cuda:0") if len(set(DEVICES)) == 1 else torch.ones(())

    def forward(self, x):
        return self.inner(x) * self.scale


def tokens(items=4 * COUNT):
    return torch.randint(0, 20, (items, 5))


def simple(items=4 * COUNT):
    return torch.randn(items, 8)


def mlp():
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 3))


def loss_of(output):
    return (output["logits"] if isinstance(output, dict) else output).float().square().mean()


def train(make, inputs, policy, context=None, between=lambda *_: None, **kwargs):
    """Return the losses and all states after `STEPS` steps, and the wrapper."""
    torch.manual_seed(1)
    torch.cuda.manual_seed_all(1)
    base = make().to("cuda:0")
    wrapper = DataParallel(base, DEVICES, policy=Policy(**SMALL, **policy))
    optimizer = torch.optim.SGD(base.parameters(), lr=0.1, momentum=0.9)
    seen = []
    for number in range(STEPS):
        between(number, wrapper, optimizer)
        optimizer.zero_grad()
        with context() if context else torch.enable_grad():
            x = inputs(number).to("cuda:0")
            given = (x, x) if isinstance(base, ModelWithLoss) else (x,)
            loss = loss_of(wrapper(*given, **kwargs))
        loss.backward()
        optimizer.step()
        seen += [loss.detach(), *[value.clone() for value in base.state_dict().values()]]
    return seen, wrapper


def both(make, inputs, reason=None, **options):
    """Assert that graphs change no bit, and that the steps ran as graphs, or eagerly with the reason."""
    route = "chain" if COUNT > 2 else "star"
    torch.manual_seed(0)
    batches = [inputs() for _ in range(STEPS)]
    wanted, _ = train(make, batches.__getitem__, {"route": route}, **options)
    by_graphs, wrapper = train(make, batches.__getitem__, {"route": route, "graphs": True}, **options)
    for mine, theirs in zip(by_graphs, wanted, strict=True):
        assert torch.equal(mine, theirs)
    report = wrapper.graph_report()
    if reason is None:
        assert sum(int(line.split()[0]) for line in report if "forwards: graphs (" in line) == STEPS - graphs.WARM_UPS
    else:
        assert any(f"eager: {reason}" in line for line in report), report
    return wrapper


def autocast():
    return torch.autocast("cuda", dtype=torch.bfloat16)


def evaluate(number, wrapper, _):
    wrapper.eval()
    with torch.no_grad():
        wrapper(torch.ones(2 * COUNT, 8, device="cuda:0"))
    wrapper.train()


def restore(number, wrapper, _):
    wrapper.module.load_state_dict({name: value * 0.9 for name, value in wrapper.module.state_dict().items()})


@pytest.mark.parametrize(
    ("make", "inputs", "options"),
    [
        pytest.param(mlp, simple, {}, id="mlp"),
        pytest.param(Model, tokens, {}, id="model"),
        pytest.param(Model, tokens, {"scale": 2.0}, id="keyword"),
        pytest.param(mlp, lambda: simple(4 * COUNT - 1), {}, id="uneven"),
        pytest.param(mlp, lambda: simple(COUNT * (SMALL_BYTES // 32 + 1)), {}, id="chunks on side streams"),
        pytest.param(mlp, simple, {"context": autocast}, id="autocast"),
        pytest.param(mlp, simple, {"between": restore}, id="restored"),
        pytest.param(Keeps, simple, {}, id="constant"),
        pytest.param(lambda: with_loss(nn.Linear(8, 8), functional.mse_loss), simple, {}, id="with loss"),
    ],
)
def test_a_graphed_step_equals_the_eager_one(make, inputs, options):
    both(make, inputs, **options)


def test_evaluation_between_steps_has_graphs_of_its_own():
    torch.manual_seed(0)
    batches = [simple() for _ in range(STEPS)]
    wanted, _ = train(mlp, batches.__getitem__, {}, between=evaluate)
    by_graphs, wrapper = train(mlp, batches.__getitem__, {"graphs": True}, between=evaluate)
    assert all(itertools.starmap(torch.equal, zip(by_graphs, wanted, strict=True)))
    assert len([line for line in wrapper.graph_report() if "forwards: graphs (" in line]) == 2


def hooked():
    model = mlp()
    model[0].register_forward_hook(lambda *_: None)
    return model


def reads_its_output(self, x):
    y = self.inner(x)
    return y if y.sum() > 0 else -y


def reads():
    return Call(reads_its_output, inner=mlp())


class Counts(Keeps):
    def forward(self, x):
        self.scale += 1
        return self.inner(x) + self.scale


class Trains(Keeps):
    def __init__(self):
        super().__init__()
        self.scale.requires_grad_()


class Special(torch.Tensor):
    pass


def buffered():
    model = Call(lambda self, x: self.inner(x) + self.shift.as_subclass(torch.Tensor), inner=mlp())
    model.register_buffer("shift", torch.ones(3).as_subclass(Special))
    return model


def sparse():
    model = Call(lambda self, x: self.inner(x) @ self.mixed.to_dense(), inner=mlp())
    model.register_buffer("mixed", torch.eye(3).to_sparse(), persistent=False)
    return model


def recurrent():
    return Call(lambda self, x: self.inner(x.unsqueeze(1))[0], inner=nn.GRU(8, 4, batch_first=True))


@pytest.mark.parametrize(
    ("make", "inputs", "reason"),
    [
        (hooked, simple, "a module has hooks"),
        (reads, simple, "the capture failed: AcceleratorError"),
        (Counts, simple, "the capture failed: RefusedError: a tensor that is neither a parameter nor a buffer changes"),
        (Trains, simple, "Trains.scale is neither a parameter nor a buffer, and no plain constant"),
        (recurrent, simple, "GRU is a custom module"),
        (buffered, simple, "a parameter or buffer fits into no flat"),
        (sparse, simple, "a parameter or buffer fits into no flat"),
    ],
)
def test_what_a_graph_would_get_wrong_runs_eagerly_with_a_reason(make, inputs, reason):
    with pytest.warns(UserWarning, match="a forward ran eagerly"):
        both(make, inputs, reason)


def graphed(base=None, loss=torch.sum, **policy):
    """Return a wrapper whose next forward of `simple` is a graph's."""
    wrapper = DataParallel((base or mlp()).to("cuda:0"), DEVICES, policy=Policy(**{**SMALL, **policy}, graphs=True))
    for _ in range(graphs.WARM_UPS):
        loss(wrapper(simple().to("cuda:0"))).sum().backward()
    assert wrapper.trials_left == 1
    return wrapper


def assert_plain_gradients(base, x, times=1):
    wanted = torch.autograd.grad(base(x).sum(), list(base.parameters()))
    for parameter, once in zip(base.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, times * once)


def test_gradients_and_outputs_that_the_user_holds_stay():
    wrapper = graphed()
    wrapper.module.zero_grad()
    first = wrapper(simple().to("cuda:0"))
    first.sum().backward()
    held = [first.detach(), *[parameter.grad for parameter in wrapper.module.parameters()]]
    copies = [tensor.clone() for tensor in held]
    wrapper.module.zero_grad()
    wrapper(simple().to("cuda:0")).sum().backward()
    assert wrapper.trials_left == 0
    assert all(itertools.starmap(torch.equal, zip(held, copies, strict=True)))


def test_a_backward_needs_no_wrapper():
    base, x = mlp().to("cuda:0"), simple().to("cuda:0")
    wrapper = graphed(base)
    loss = wrapper(x).sum()
    assert wrapper.trials_left == 0
    base.zero_grad()
    del wrapper
    gc.collect()
    synchronize()
    torch.cuda.empty_cache()  # what nothing keeps is unmapped
    loss.backward()
    assert_plain_gradients(base, x)


def by_turns(wrapper, number):
    """Let every second step have a dropout, or a loss of one output alone."""
    wrapper.module.drop.train(number % 2 == 0)
    return slice(None) if number % 2 else slice(1)


def two_outputs(self, x):
    y = self.drop(self.inner(x))
    return y, self.other(y)


def test_steps_may_change_modes_of_a_part_and_use_other_outputs():
    torch.manual_seed(0)
    base = Call(two_outputs, inner=mlp(), drop=nn.Dropout(0.5), other=nn.Linear(3, 3)).to("cuda:0")
    batches = [simple().to("cuda:0") for _ in range(10)]
    grads = []
    for policy in ({}, {"graphs": True}):
        wrapper = DataParallel(copy.deepcopy(base), DEVICES, policy=Policy(**SMALL, **policy))
        torch.cuda.manual_seed_all(1)
        for number, batch in enumerate(batches):
            used = by_turns(wrapper, number)
            sum(output.square().sum() for output in wrapper(batch)[used]).backward()
            grads.append([parameter.grad for parameter in wrapper.module.parameters()])
            wrapper.module.zero_grad()
    for eager, graphed_step in zip(grads[: len(batches)], grads[len(batches) :], strict=True):
        for grad, other in zip(eager, graphed_step, strict=True):
            assert torch.equal(grad, other) if grad is not None else other is None
    assert len([line for line in wrapper.graph_report() if "forwards: graphs (" in line]) == 1


def two_heads():
    """Two heads of which a loss may use one. Its weights share a bucket with those of the other."""

    def forward(self, x):
        y = self.inner(x)
        return self.one(y), self.other(y)

    return Call(forward, inner=mlp(), one=nn.Linear(3, 2), other=nn.Linear(3, 2))


@pytest.mark.parametrize("used", [0, 1])
def test_a_head_that_the_loss_does_not_use_has_no_gradient(used):
    wrapper = DataParallel(two_heads().to("cuda:0"), DEVICES, policy=Policy(graphs=True))
    base = wrapper.module
    optimizer = torch.optim.AdamW(base.parameters(), lr=0.1, weight_decay=0.5)
    heads = [base.one, base.other]
    before = [head.weight.detach().clone() for head in heads]
    hooked = []
    heads[1 - used].bias.register_hook(hooked.append)  # the engine calls it with zeros, as in an eager step
    for _ in range(STEPS):
        optimizer.zero_grad()
        wrapper(simple().to("cuda:0"))[used].square().sum().backward()
        optimizer.step()
        assert heads[1 - used].weight.grad is None
    assert [torch.equal(head.weight, value) for head, value in zip(heads, before, strict=True)] == [
        used == 1,
        used == 0,
    ]
    assert len(hooked) == STEPS
    assert any("forwards: graphs (" in line for line in wrapper.graph_report())


@pytest.mark.parametrize("is_wrong", [False, True])
def test_a_check_finds_gradients_where_an_eager_step_has_none(is_wrong, monkeypatch):
    if is_wrong:
        monkeypatch.setattr(graphs, "_reached_weights", lambda *_: set())
    wrapper, x = graphed(two_heads(), check_graphs=True, loss=itemgetter(0)), simple().to("cuda:0")
    for _ in range(graph_check.CHECKS):
        wrapper(x)[0].sum().backward()
    differs = [line for line in wrapper.graph_report() if "graphs differ from an eager step" in line]
    assert bool(differs) is is_wrong
    assert all("shape" in line for line in differs)


def test_gradients_add_up_without_zero_grad():
    wrapper = graphed()
    x = simple().to("cuda:0")
    wrapper.module.zero_grad()
    for _ in range(3):
        wrapper(x).sum().backward()
    assert_plain_gradients(wrapper.module, x, times=3)


def test_a_second_forward_before_the_backward_runs_eagerly():
    wrapper, x = graphed(), simple().to("cuda:0")
    wrapper.module.zero_grad()
    with pytest.warns(UserWarning, match="an earlier forward waits for its backward"):
        (wrapper(x).sum() + wrapper(2 * x).sum()).backward()
    assert_plain_gradients(wrapper.module, torch.cat([x, 2 * x]))


@pytest.mark.parametrize("name", ["replicate", "parallel_apply", "gather"])
@pytest.mark.parametrize("is_a_subclass", [True, False], ids=["subclass", "instance"])
def test_what_the_user_replaces_is_called(name, is_a_subclass):
    called, kind = [], DataParallel

    def replaced(self, *args):
        called.append(name)
        return getattr(DataParallel, name)(self, *args)

    if is_a_subclass:
        kind = type("Own", (DataParallel,), {name: replaced})
    wrapper = kind(mlp().to("cuda:0"), DEVICES, policy=Policy(**SMALL, graphs=True))
    if not is_a_subclass:
        setattr(wrapper, name, functools.partial(replaced, wrapper))
    x = simple().to("cuda:0")
    with pytest.warns(UserWarning, match=f"the wrapper has a {name} of its own"):
        wrapper(x).sum().backward()
    for _ in range(graphs.WARM_UPS + 1):
        wrapper(x).sum().backward()
    assert called == [name] * (graphs.WARM_UPS + 2)


def test_cached_parametrizations_run_eagerly():
    wrapper, x = graphed(), simple().to("cuda:0")
    with nn.utils.parametrize.cached(), pytest.warns(UserWarning, match="parametrizations are cached"):
        wrapper(x)


class InDefaultDtype(nn.Linear):
    def forward(self, x):
        return super().forward(x).to(torch.get_default_dtype())


def test_other_settings_are_another_kind_of_step():
    wrapper, x = graphed(InDefaultDtype(8, 3)), simple().to("cuda:0")
    assert wrapper(x).dtype is torch.float32
    assert wrapper.trials_left == 0
    torch.set_default_dtype(torch.float64)
    try:
        assert wrapper(x).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def set_precision(value):
    torch.backends.cuda.matmul.fp32_precision = value


SETTINGS = {
    "the precision of products": (torch.set_float32_matmul_precision, "high", "highest"),
    "the same by its new name": (set_precision, "tf32", "none"),
    "TF32 in cuDNN": (partial(setattr, torch.backends.cudnn, "allow_tf32"), False, True),
    "deterministic algorithms": (torch.use_deterministic_algorithms, True, False),
    "cuDNN's choice by time": (partial(setattr, torch.backends.cudnn, "benchmark"), True, False),
    "sums in half precision": (
        partial(setattr, torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction"),
        False,
        True,
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_by_which_libraries_choose_kernels_is_another_kind(name):
    assign, value, before = SETTINGS[name]
    wrapper, x = graphed(), simple().to("cuda:0")
    wrapper(x).sum().backward()
    assert wrapper.trials_left == 0
    assign(value)
    try:
        wrapper(x).sum().backward()
        assert wrapper.trials_left == graphs.WARM_UPS
    finally:
        assign(before)


def test_a_constant_that_the_user_replaces_or_writes_is_read_anew():
    wrapper, x = graphed(Keeps()), simple().to("cuda:0")
    base = wrapper.module
    for change in (lambda: None, lambda: base.scale.fill_(3), lambda: setattr(base, "scale", base.scale + 1)):
        change()
        torch.testing.assert_close(wrapper(x), base(x))
        assert wrapper.trials_left == 0


def test_what_an_input_or_an_accumulation_needs_runs_eagerly():
    wrapper = graphed()
    x = simple().to("cuda:0").requires_grad_()
    with pytest.warns(UserWarning, match="an input needs a gradient"):
        (grad,) = torch.autograd.grad(wrapper(x).sum(), x)
    torch.testing.assert_close(grad, torch.autograd.grad(wrapper.module(x).sum(), x)[0])
    with wrapper.accumulate():
        wrapper(x.detach()).sum().backward()
    assert any("accumulate() was used" in line for line in wrapper.graph_report())


def test_a_second_derivative_is_an_error_that_says_what_to_do():
    wrapper = graphed()
    loss = wrapper(simple().to("cuda:0")).square().sum()
    with pytest.raises(RuntimeError, match="needs a forward that ran eagerly; use graphs=False"):
        torch.autograd.grad(loss, list(wrapper.module.parameters()), create_graph=True)


def test_weights_that_change_before_the_backward_are_an_error_as_for_autograd():
    wrapper = graphed()
    loss = wrapper(simple().to("cuda:0")).sum()
    with torch.no_grad():
        wrapper.module[0].weight.mul_(2)
    with pytest.raises(RuntimeError, match="a parameter has been modified in place since the forward"):
        loss.backward()


def test_a_second_or_a_late_backward_is_an_error():
    wrapper, x = graphed(), simple().to("cuda:0")
    loss = wrapper(x).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="a second backward of one forward is not possible"):
        loss.backward(retain_graph=True)
    other = wrapper(x).sum()
    with pytest.raises(RuntimeError, match="a later forward has replaced the activations"):
        loss.backward()
    wrapper.module.zero_grad()
    other.backward()
    assert_plain_gradients(wrapper.module, x)


def test_weights_that_move_are_captured_again():
    wrapper, x = graphed(), simple().to("cuda:0")
    for number in range(graphs.MOST_CAPTURES + 2):
        for parameter in wrapper.module.parameters():
            parameter.data = parameter.data.clone() * 1.01
        torch.testing.assert_close(wrapper(x), wrapper.module(x))
        assert any("have moved" in line for line in wrapper.graph_report()) is (number >= graphs.MOST_CAPTURES)


class Workspace(nn.Linear):
    """Keeps memory of each capture alive, as torch does with the workspace of a library."""

    kept: ClassVar[list[torch.Tensor]] = []

    def __init__(self):
        super().__init__(8, 3)

    def forward(self, x):
        if torch.cuda.is_current_stream_capturing():
            self.kept.append(torch.empty(1 << 20, dtype=torch.uint8, device=x.device))
        return super().forward(x)


def test_weights_that_move_are_captured_again_while_a_workspace_lies_in_the_pool():
    wrapper, x = graphed(Workspace()), simple().to("cuda:0")
    for _ in range(graphs.MOST_CAPTURES):
        wrapper(x).sum().backward()
        assert wrapper.trials_left == 0
        for parameter in wrapper.module.parameters():
            parameter.data = parameter.data.clone()
    Workspace.kept.clear()
    assert not any("eager:" in line for line in wrapper.graph_report())


def test_graphs_of_another_kind_stay_whole_when_one_is_captured_again():
    """A graph that ends takes the workspaces of its stream with it, so it ends with all others of its lane."""
    wrapper, x = graphed(), simple().to("cuda:0")
    wrapper(x).sum().backward()
    with torch.no_grad():
        for _ in range(graphs.WARM_UPS + 1):
            wrapper(x)
    (place,) = {lane._place for kind in kinds_of(wrapper) for lane in kind.step.lanes[:1]}
    assert len(place._graphs) == 3
    parameters = list(wrapper.module.parameters())
    earlier = [parameter.data for parameter in parameters]
    for parameter in parameters:
        parameter.data = parameter.data.clone() * 2
    wrapper(x).sum().backward()
    assert len(place._graphs) == 5
    for parameter, values in zip(parameters, earlier, strict=True):
        parameter.data = values
    with torch.no_grad():  # this kind's weights lie where they were
        torch.testing.assert_close(wrapper(x), wrapper.module(x))
    assert len(place._graphs) == 5


def kinds_of(wrapper):
    return list(wrapper._replicas.sets._sets[0]._graphs._kinds.values())


def test_no_two_places_share_a_stream_and_the_last_stream_is_an_error():
    device = torch.device("cuda", 0)
    places = [capture.CapturePlace(device) for _ in range(capture.STREAMS - len(in_use(device)))]
    assert len(in_use(device)) == capture.STREAMS
    with pytest.warns(UserWarning, match="RefusedError: all 32 capture streams of cuda:0 have graphs"):
        graphed()(simple().to("cuda:0"))
    del places[0]
    wrapper = graphed()
    wrapper(simple().to("cuda:0"))
    assert wrapper.trials_left == 0 or COUNT == 1  # lanes on one device need two


def in_use(device):
    gc.collect()
    return [stream for stream in capture._places if stream.device == device]


def test_shapes_beyond_the_most_run_eagerly():
    wrapper = graphed()
    for items in range(1, graphs.MOST_KINDS + 2):
        x = simple(COUNT * items + 40).to("cuda:0")
        torch.testing.assert_close(wrapper(x).detach(), wrapper.module(x).detach())
    assert any("more than 8 kinds" in line for line in wrapper.graph_report())


def used():
    gc.collect()
    synchronize()
    torch.cuda.empty_cache()
    return [torch.cuda.memory_reserved(device) for device in DEVICES]


def needs_too_much(self, x):
    """Need 100 MB in a capture first, and then more than there is."""
    if torch.cuda.is_current_stream_capturing():
        held = torch.empty(100 << 20, dtype=torch.uint8, device=x.device)
        torch.empty(1 << 50, dtype=torch.uint8, device=held.device)
    return self.inner(x)


def test_a_capture_without_enough_memory_runs_eagerly_and_frees_its_pool():
    base, x = Call(needs_too_much, inner=mlp()).to("cuda:0"), simple().to("cuda:0")
    wrapper = graphed(base)
    before = used()
    base.zero_grad()
    with pytest.warns(UserWarning, match="the capture failed: OutOfMemoryError"):
        wrapper(x).sum().backward()
    assert_plain_gradients(base, x)
    assert max(after - earlier for after, earlier in zip(used(), before, strict=True)) < 50 << 20


def reads_in_backward():
    """Return a model whose backward reads a value, which a capture refuses. It draws random numbers before."""

    def forward(self, x):
        y = self.inner(x)
        y.register_hook(lambda grad: grad * grad.sum().item())
        return y

    return Call(forward, inner=nn.Sequential(nn.Linear(8, 3), nn.Dropout(0.5)))


@pytest.mark.parametrize("make", [reads, reads_in_backward])
def test_a_refused_capture_leaves_the_process_whole(make):
    wrapper = graphed(make())
    with pytest.warns(UserWarning, match="the capture failed"):
        wrapper(simple().to("cuda:0")).sum().backward()
    functional.dropout(torch.ones(5, device="cuda:0")) + torch.rand(5, device="cuda:0")
    side, reserved = torch.cuda.Stream(), []
    for _ in range(3):
        for _ in range(20):
            block = torch.empty(1 << 20, dtype=torch.uint8, device="cuda:0")
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                block.add_(1)
            block.record_stream(side)
            del block
            torch.cuda.synchronize()
        reserved.append(torch.cuda.memory_reserved())
    assert reserved[0] == reserved[2]
    both(mlp, simple)


def test_a_refused_capture_gives_its_memory_back():
    before, wrapper = (
        used(),
        graphed(nn.Sequential(nn.Linear(8, 2000), Call(reads_its_output, inner=nn.Linear(2000, 3)))),
    )
    idle, x = used(), simple(4000).to("cuda:0")
    for _ in range(graphs.WARM_UPS):
        wrapper(x).sum().backward()
    with pytest.warns(UserWarning, match="the capture failed"):
        wrapper(x).sum().backward()
    wrapper.module.zero_grad()
    del x
    assert used() == idle
    del wrapper
    assert used() == before


def test_a_kind_warms_up_in_sequence_on_the_thread_that_captures_it():
    threads = []

    class Notes(nn.Linear):
        def forward(self, x):
            threads.append((threading.get_ident(), torch.cuda.is_current_stream_capturing()))
            return super().forward(x)

    here, lanes = threading.get_ident(), len(DEVICES)
    wrapper, x = graphed(Notes(8, 3), dispatch="threads"), simple().to("cuda:0")
    other = threading.Thread(target=lambda: [wrapper(x).sum().backward() for _ in range(graphs.WARM_UPS + 1)])
    other.start()
    other.join()
    eager = [(here, False)] * lanes * graphs.WARM_UPS
    assert threads[: len(eager)] == eager
    elsewhere = threads[len(eager) :]
    assert len({thread for thread, _ in elsewhere} - {here}) == len({thread for thread, _ in elsewhere}) == 1
    assert [is_capture for _, is_capture in elsewhere] == [False] * lanes * graphs.WARM_UPS + [True] * lanes


def test_no_memory_is_left_when_the_wrapper_goes():
    before = used()
    wrapper = graphed(nn.Sequential(nn.Linear(8, 2000), nn.Linear(2000, 3)))
    wrapper(simple().to("cuda:0")).sum().backward()
    assert wrapper.trials_left == 0
    assert used() > before
    del wrapper
    assert used() == before


def wait_before_launches(monkeypatch):
    monkeypatch.setattr(graphs, "waits_are_for_earlier_records", lambda _: False)


def on_lane_0(name, otherwise):
    """Let a method of the broadcaster do nothing for lane 0."""
    real = getattr(broadcast.Broadcaster, name)
    return broadcast.Broadcaster, name, lambda self, number: real(self, number) if number else otherwise


BEFORE_LAUNCHES = {
    "the weights' arrival": (broadcast.Broadcaster, "await_sent", lambda *_: None),
    "the departure of lane 0's buffers": on_lane_0("await_sent", None),
}


def copy_at_once(package, base):
    return replace(package, flat=package.flat.clone(), ready=None)


FORGOTTEN = {
    "the weights' arrival": (broadcast.Broadcaster, "arrivals", lambda *_: {}),
    "the departure of lane 0's buffers": on_lane_0("arrivals", {}),
    "the buckets' events": (reduce, "_wait_for", lambda *_: None),
    "the bucket's event, of lane 0": (gradient_nodes, "to_sum_in", copy_at_once),
}


def train_normed():
    base = nn.Sequential(mlp(), nn.BatchNorm1d(3))
    wrapper = graphed(base, route="chain" if COUNT > 2 else "star")
    for _ in range(3):
        wrapper(simple().to("cuda:0")).sum().backward()
    synchronize()


@pytest.mark.races
@pytest.mark.skipif(COUNT < 2, reason="one device has one stream for all lanes")
@pytest.mark.parametrize("forgotten", [BEFORE_LAUNCHES, FORGOTTEN], ids=["before launches", "in graphs"])
def test_each_wait_is_needed(forgotten, monkeypatch):
    if forgotten is BEFORE_LAUNCHES:
        wait_before_launches(monkeypatch)
    train_normed()
    assert control.take_races() == []
    for place in forgotten.values():
        with monkeypatch.context() as patch:
            patch.setattr(*place)
            with pytest.raises(RuntimeError, match="race"):
                train_normed()
        assert control.take_races() != []


def test_waits_may_be_before_the_launches(monkeypatch):
    wait_before_launches(monkeypatch)
    both(Model, tokens)


def first_sleeps_too_long(monkeypatch):
    """As if the wait had been for the record behind the long sleep."""
    monkeypatch.setattr(graph_waits, "SHORT_CYCLES", 2 * graph_waits.LONG_CYCLES)


def host_is_late(monkeypatch):
    """The host records the event again when the graph's wait is over, so no try counts."""
    sleep = torch.cuda._sleep

    def sleep_later(cycles):
        if cycles == graph_waits.LONG_CYCLES:
            torch.cuda.synchronize()
        sleep(cycles)

    monkeypatch.setattr(torch.cuda, "_sleep", sleep_later)


@pytest.mark.filterwarnings("error")  # an empty graph is a warning
@pytest.mark.parametrize("disturb", [None, first_sleeps_too_long, host_is_late])
def test_a_wait_in_a_graph_is_for_the_record_before_the_launch(disturb, monkeypatch):
    if disturb is not None:
        disturb(monkeypatch)
    for device in map(torch.device, range(COUNT)):
        with torch.cuda.device(device):
            assert graph_waits.waits_are_for_earlier_records.__wrapped__(device) is (disturb is None)


class Chooses(nn.Module):
    """Its Python code counts its calls, which a graph does not; `kind` is where the count shows."""

    def __init__(self, kind):
        super().__init__()
        self.inner, self.drop, self.norm, self.kind = mlp(), nn.Dropout(0.4), nn.BatchNorm1d(3), kind
        self.register_buffer("total", torch.zeros(3))
        self.calls = itertools.count(1)

    def forward(self, x):
        number = next(self.calls)
        y = self.norm(self.drop(self.inner(x)))
        if self.kind == "buffer":
            self.total.add_(number)
        if self.kind == "gradient":
            return y + number * y - (number * y).detach()
        return y + number * y.detach() if self.kind == "output" else y


def test_a_check_leaves_what_equals_eager_steps_as_it_is():
    torch.manual_seed(0)
    batches = [simple() for _ in range(STEPS)]
    wanted, _ = train(lambda: Chooses("nothing"), batches.__getitem__, {})
    by_graphs, wrapper = train(lambda: Chooses("nothing"), batches.__getitem__, {"graphs": True, "check_graphs": True})
    assert all(itertools.starmap(torch.equal, zip(by_graphs, wanted, strict=True)))
    number = int(wrapper.graph_report()[-1].split(" forwards: graphs (")[0])
    assert number == STEPS - graphs.WARM_UPS > graph_check.CHECKS
    wrapper(simple().to("cuda:0"))
    assert next(wrapper.module.calls) == 1 + len(DEVICES) * (graphs.WARM_UPS + 1 + graph_check.CHECKS)


@pytest.mark.parametrize("kind", ["output", "gradient", "buffer"])
def test_a_check_finds_what_a_graph_does_not_repeat(kind):
    with pytest.warns(UserWarning, match="graphs differ from an eager step: .*not close"):
        _, wrapper = train(lambda: Chooses(kind), lambda _: simple(), {"graphs": True, "check_graphs": True})
    assert not any("forwards: graphs (" in line for line in wrapper.graph_report())
    assert f"{STEPS - graphs.WARM_UPS} forwards: eager: graphs differ" in wrapper.graph_report()[-1]


class Noted(Function):
    """Notes the order of the backward, which Python code has at the capture alone."""

    @staticmethod
    def forward(ctx, x, name):
        ctx.name = name
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        order.append(ctx.name)
        return grad, None


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
        for number, layer in enumerate(self.layers):
            x = layer(Noted.apply(x, number))
        return x


order: list[object] = []


def test_a_bucket_is_packed_before_the_backward_goes_on(monkeypatch):
    pack = graphs.GraphedBucket.pack
    monkeypatch.setattr(graphs.GraphedBucket, "pack", lambda self, grads: (order.append("pack"), pack(self, grads)))
    policy = Policy(bucket_bytes=288, first_bucket_bytes=288, dispatch="sequence", graphs=True)
    wrapper = DataParallel(Layers().to("cuda:0"), DEVICES, policy=policy)
    for _ in range(graphs.WARM_UPS + 1):
        order.clear()
        wrapper(simple().to("cuda:0")).sum().backward()
    assert order == ["pack", 3, "pack", 2, "pack", 1, "pack"] * len(DEVICES)


def test_sums_are_issued_in_the_order_of_the_packs(monkeypatch):
    """Lane 0's copy of a bucket comes right before the bucket's sum, and the last layers' bucket first."""
    policy = Policy(bucket_bytes=288, first_bucket_bytes=288, dispatch="sequence", graphs=True)
    wrapper = DataParallel(Layers().to("cuda:0"), DEVICES, policy=policy)
    copied, summed = gradient_nodes.to_sum_in, gradient_nodes.sum_along_route
    monkeypatch.setattr(gradient_nodes, "to_sum_in", lambda *given: (order.append(given[0].flat), copied(*given))[1])
    monkeypatch.setattr(gradient_nodes, "sum_along_route", lambda given: (order.append("sum"), summed(given))[1])
    for number in range(graphs.WARM_UPS + 10):
        loss = wrapper(simple().to("cuda:0")).sum()
        order.clear()
        loss.backward()
        if number < graphs.WARM_UPS:
            continue
        (kind,) = kinds_of(wrapper)
        flats = [bucket.flat for bucket in kind.step.lanes[0].buckets]
        interleaved = [entry for entry in order if not isinstance(entry, int)]
        assert len(interleaved) == 8
        assert all(flat is wanted for flat, wanted in zip(interleaved[::2], reversed(flats), strict=True))
        assert interleaved[1::2] == ["sum"] * 4


def test_weights_that_a_forward_does_not_read_may_be_written_after_it():
    layers = {"inner": nn.Linear(8, 64, bias=False), "unread": nn.Linear(64, 64)}  # a bucket for each weight
    base = Call(lambda self, x: self.inner(x), **layers).to("cuda:0")
    wrapper, x = DataParallel(base, DEVICES, policy=Policy(**SMALL, graphs=True)), simple().to("cuda:0")
    for _ in range(graphs.WARM_UPS + 3):
        with torch.no_grad():
            wrapper(x)
            base.unread.weight.add_(1)


@pytest.mark.skipif(COUNT < 2, reason="one device has one stream for all lanes")
def test_gradients_are_kept_for_the_compute_stream():
    wrapper, x = graphed(), simple().to("cuda:0")
    parameters = list(wrapper.module.parameters())
    hub = wrapper._replicas.streams._streams[0][0]
    for _ in range(3):
        wrapper.module.zero_grad()
        wrapper(x).sum().backward()
        sizes = [(parameter.grad * 2).numel() for parameter in parameters]
        wrapper.module.zero_grad()
        with torch.cuda.stream(hub):
            for size in sizes:
                torch.ones(size, device="cuda:0")
