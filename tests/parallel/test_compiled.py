"""Better than stock: compiled modules stay compiled on the lanes, and give the numbers of eager lanes."""

import copy
import pickle
import threading
import warnings
from functools import partial

import pytest
import setuptools  # noqa: F401  # the compiler needs it, and it cannot be imported once a test has imported pip
import torch
import torch._dynamo
from torch import nn
from torch._dynamo.utils import counters
from torch.nn.functional import cross_entropy

from dpbench.parallel import DataParallel, Policy, data_parallel, with_loss
from tests.parallel.models import Call, Tied, mlp, normed
from tests.parallel.on_lanes import assert_close, sets_of

BACKEND = "aot_eager"  # all of the compiler, but for the code generator: in seconds
LANES = 2


class Blocks(nn.Module):
    """Two blocks of the same class, for regional compilation; `make` makes a block."""

    def __init__(self, make=lambda: nn.BatchNorm1d(5)):
        super().__init__()
        self.first, self.second = Call(_block, inner=make()), Call(_block, inner=make())
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.second(self.first(x)))


def _block(self, x):
    return x + torch.tanh(self.inner(x))


def wrapped(base, **policy):
    return DataParallel(base, ["cpu"] * LANES, policy=Policy(**policy))


def compiled_module(base, **options):
    return wrapped(torch.compile(base, **options))


def compiled_in_place(base, **options):
    base.compile(**options)
    return wrapped(base)


def compiled_in_place_later(base, **options):
    wrapper = wrapped(base)
    base.compile(**options)
    return wrapper


def compiled_region_in_place(base, **options):
    for child in base.children():
        child.compile(**options)
    return wrapped(base)


def compiled_region(base, **options):
    for name, child in list(base.named_children()):
        setattr(base, name, torch.compile(child, **options))
    return wrapped(base)


def compiled_wrapper(base, **options):
    return torch.compile(wrapped(base), **options)


def compiled_wrapper_in_place(base, **options):
    wrapper = wrapped(base)
    wrapper.compile(**options)
    return wrapper


OF_THE_WHOLE = (
    compiled_module,
    compiled_in_place,
    compiled_in_place_later,
    compiled_wrapper,
    compiled_wrapper_in_place,
)
WAYS = (*OF_THE_WHOLE, compiled_region, compiled_region_in_place)
every_way = pytest.mark.parametrize("way", WAYS)
MECHANISMS = (compiled_module, compiled_region_in_place, compiled_wrapper)
"""A module that wraps another, a bound callable, and dynamo's callback."""
way = pytest.mark.parametrize("way", MECHANISMS)


@pytest.fixture(autouse=True)
def _nothing_compiled():
    torch._dynamo.reset()
    counters.clear()


def inner(wrapper):
    return getattr(wrapper, "_orig_mod", wrapper)


def graphs():
    return counters["stats"]["unique_graphs"]


def trained(wrapper, base, batches, forward=lambda wrapper, x: wrapper(x)):
    """The state after a step for each batch."""
    optimizer = torch.optim.SGD(base.parameters(), lr=0.1)
    for x in batches:
        optimizer.zero_grad()
        forward(wrapper, x).square().mean().backward()
        optimizer.step()
    return dict(base.state_dict())


def assert_equal_training(way, base, batches, **options):
    eager, compiled = copy.deepcopy(base), copy.deepcopy(base)
    want = trained(wrapped(eager), eager, batches)
    wrapper = way(compiled, **{"backend": BACKEND, **options})
    names = list(wrapper.state_dict())
    got = trained(wrapper, compiled, batches)
    assert list(wrapper.state_dict()) == names
    assert_close(list(got.values()), list(want.values()))
    return inner(wrapper)


@pytest.mark.parametrize(
    ("way", "options"),
    [*[(way, {}) for way in WAYS], *[(way, {name: True}) for way in MECHANISMS for name in ("fullgraph", "dynamic")]],
)
def test_each_way_to_compile_trains_as_eager_lanes_and_one_graph_serves_all_lanes(way, options):
    # Of two blocks the first gets an input without a gradient, so that a region has two graphs.
    wrapper = assert_equal_training(way, Blocks(), torch.randn(6, 8, 5), **options)
    assert graphs() == (1 if way in OF_THE_WHOLE else 3)
    assert wrapper.compile_report() == [f"1 forwards: compiled, and {graphs()} new graphs", "5 forwards: compiled"]
    assert len(sets_of(wrapper)) == 1


@way
def test_the_code_generator_compiles_the_replicas(way):
    assert_equal_training(way, mlp(), torch.randn(3, 8, 5), backend="inductor")
    assert graphs() > 0


@every_way
def test_lanes_run_on_the_calling_thread_whatever_the_policy_says(way, monkeypatch):
    threads = []
    base = nn.Sequential(Call(lambda self, x: _seen(threads, x) + self.weight, weight=nn.Parameter(torch.ones(5))))
    monkeypatch.setitem(globals(), "Policy", partial(Policy, dispatch="threads"))
    wrapper = way(base, backend=BACKEND)
    for _ in range(3):
        wrapper(torch.randn(8, 5))
    assert set(threads) == {threading.get_ident()}


@torch.compiler.disable
def _seen(threads, x):
    threads.append(threading.get_ident())
    return x


@way
def test_a_compiled_module_runs_as_its_replica(way):
    seen = []

    @torch.compiler.disable
    def see(module):
        seen.append("_is_replica" in vars(module))

    wrapper = way(nn.Sequential(Call(lambda self, x: see(self) or x)), backend=BACKEND)
    wrapper(torch.ones(8, 5))
    assert seen == [True] * LANES


@way
def test_an_optimizer_step_and_a_changed_buffer_reach_the_lanes(way):
    base, x = normed(), torch.randn(8, 5)
    wrapper = way(base, backend=BACKEND)
    wrapper.eval()
    with torch.no_grad():
        for factor in (1, 2, 3):
            base[0].weight.mul_(factor)
            base[1].running_mean.add_(factor)
            assert_close(wrapper(x), copy.deepcopy(base).eval()._call_impl(x))


@way
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_evaluation_beside_training_compiles_once_for_each_mode(way, mode):
    base, x = normed(), torch.randn(8, 5)
    wrapper, eager = way(base, backend=BACKEND), wrapped(copy.deepcopy(base))
    for round_number in range(3):
        before = graphs()
        for model in (wrapper, eager):
            model.train()
            model(x).square().mean().backward()
            model.eval()
        with mode():
            assert_close(wrapper(x), eager(x))
        assert round_number == 0 or graphs() == before


@way
def test_a_last_batch_of_another_size_compiles_each_graph_once_more_at_most(way):
    sizes = [8, 8, 6, 8, 6, 4, 7, 10]
    base = Blocks(partial(nn.Linear, 5, 5))
    wrapper = assert_equal_training(way, base, [torch.randn(size, 5) for size in sizes])
    first = 1 if way in OF_THE_WHOLE else 3
    assert graphs() <= 2 * first
    assert wrapper.compile_report()[-1].endswith("forwards: compiled")


@way
def test_frozen_and_tied_weights(way):
    base = nn.Sequential(Tied(), nn.Linear(11, 3))
    base[1].weight.requires_grad_(False)
    wrapper = way(base, backend=BACKEND)
    eager = wrapped(copy.deepcopy(base))
    tokens = torch.randint(11, (8, 4))
    for model in (wrapper, eager):
        model(tokens).sum().backward()
    assert base[1].weight.grad is None
    assert_close([p.grad for p in base.parameters() if p.requires_grad], _grads(eager))


def _grads(model):
    return [parameter.grad for parameter in model.parameters() if parameter.requires_grad]


@way
def test_accumulation_adds_up(way):
    base = mlp()
    wrapper, eager = way(base, backend=BACKEND), wrapped(copy.deepcopy(base))
    first, second = torch.randn(2, 8, 5)
    for model in (wrapper, eager):
        with inner(model).accumulate():
            model(first).sum().backward()
        model(second).sum().backward()
    assert_close([p.grad for p in base.parameters()], _grads(eager))


def test_a_loss_in_the_replicas_is_compiled_with_them():
    base = mlp()
    x, y = torch.randn(8, 5), torch.randint(3, (8,))
    wrapper = wrapped(torch.compile(with_loss(base, cross_entropy), backend=BACKEND))
    assert_close(wrapper(x, y).mean(), cross_entropy(base(x), y))
    assert graphs() == 1


@way
def test_dropout_draws_what_eager_lanes_in_sequence_draw(way):
    base = Blocks(partial(nn.Dropout, 0.5))
    wrapper, eager = way(base, backend=BACKEND), wrapped(copy.deepcopy(base), dispatch="sequence")
    x = torch.randn(8, 5)
    for _ in range(3):
        results = []
        for model in (wrapper, eager):
            torch.manual_seed(3)
            results.append(model(x))
        assert_close(*results)


def test_with_the_code_generator_dropout_draws_what_the_compiled_module_draws_chunk_by_chunk():
    base, x = nn.Sequential(nn.Linear(5, 5), nn.Dropout(0.5)), torch.randn(8, 5)
    single = torch.compile(base)
    wrapper = compiled_module(base)
    torch.manual_seed(3)
    want = torch.cat([single(chunk) for chunk in x.chunk(LANES)])
    torch.manual_seed(3)
    assert_close(wrapper(x), want)


def test_hooks_run_as_those_of_a_compiled_module():
    base, seen = mlp(), []
    base.register_forward_hook(lambda module, args, output: seen.append(vars(module)["_is_replica"]) or output + 1)
    expected = copy.deepcopy(base)
    base.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    x = torch.randn(8, 5)
    expected._forward_hooks.clear()
    assert_close(compiled_module(base, backend=BACKEND)(x), expected(2 * x) + 1)
    assert seen


@every_way
def test_copies_and_pickles_give_the_same_numbers(way):
    base, x = mlp(), torch.randn(8, 5)
    wrapper = way(base, backend=BACKEND)
    want = wrapper(x)
    for twin in (copy.deepcopy(wrapper), pickle.loads(pickle.dumps(wrapper))):
        assert_close(twin(x), want)
        with torch.no_grad():
            next(twin.parameters()).zero_()  # the copy's own
        assert_close(wrapper(x), want)
        assert not torch.equal(twin(x), want)


def test_a_replica_that_the_user_keeps_does_not_change():
    base, kept = mlp(), []
    base.register_forward_pre_hook(torch.compiler.disable(lambda module, _: kept.append(module)))
    wrapper, x = compiled_in_place(base, backend=BACKEND), torch.randn(8, 5)
    with pytest.warns(UserWarning, match="a graph break"):
        want = wrapper(x)
    of_lane_1 = kept[1]
    with torch.no_grad():
        base[0].weight.zero_()
    wrapper(x)
    assert_close(of_lane_1(x[4:]), want[4:])


def test_a_gradient_penalty_is_refused_as_by_the_compiled_module():
    def penalty(model):
        x = torch.randn(8, 5, requires_grad=True)
        (grad,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        grad.square().sum().backward()

    messages = []
    for model in (torch.compile(mlp(), backend=BACKEND), compiled_module(mlp(), backend=BACKEND)):
        with pytest.raises(RuntimeError) as raised:
            penalty(model)
        messages.append(str(raised.value))
    assert messages[0] == messages[1]


def test_a_failing_backend_is_an_error_that_names_the_cause():
    def fails(graph, inputs):
        raise OSError("no compiler here")

    with pytest.raises(RuntimeError, match=r"(?s)Caught BackendCompilerFailed in replica 0 .*no compiler here"):
        compiled_module(mlp(), backend=fails)(torch.randn(8, 5))


@way
def test_a_graph_break_is_warned_of_once_with_its_cause(way):
    class Breaks(nn.Module):
        def forward(self, x):
            torch._dynamo.graph_break(msg="here")
            return x + 1

    wrapper = way(nn.Sequential(Breaks()), backend=BACKEND)
    with pytest.warns(
        UserWarning, match="the replicas are not compiled, or in part: a graph break: .*graph_break"
    ) as seen:
        wrapper(torch.ones(8, 5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wrapper(torch.ones(8, 5))
    assert len([one for one in seen if "not compiled, or in part" in str(one.message)]) == 1
    assert any("times a graph break: " in line for line in inner(wrapper).compile_report())


def test_a_graph_break_under_fullgraph_is_the_compiled_modules_error():
    class Breaks(nn.Module):
        def forward(self, x):
            torch._dynamo.graph_break()
            return x + 1

    for way in OF_THE_WHOLE:
        with pytest.raises(torch._dynamo.exc.Unsupported):
            way(Breaks(), backend=BACKEND, fullgraph=True)(torch.ones(8, 5))


@torch._dynamo.config.patch(recompile_limit=2)
def test_the_limit_of_compilations_is_warned_of():
    base = Call(lambda self, x, n: x * n)
    wrapper = compiled_module(base, backend=BACKEND, dynamic=False)
    with pytest.warns(UserWarning, match="or in part: code that stays"):
        results = [wrapper(torch.ones(8, 5), n=n) for n in range(4)]
    assert_close(results, [torch.full((8, 5), float(n)) for n in range(4)])


def test_each_device_has_a_limit_of_its_own():
    limits = []

    def backend(graph, inputs):
        limits.append(torch._dynamo.config.recompile_limit)
        return graph

    before = torch._dynamo.config.recompile_limit
    wrapper = compiled_module(mlp(), backend=backend)
    wrapper._replicas.compile_report._device_count = 3
    wrapper(torch.randn(8, 5))
    assert limits == [3 * before]
    assert torch._dynamo.config.recompile_limit == before


def test_trials_wait_until_a_forward_compiles_nothing():
    wrapper = compiled_module(mlp(), backend=BACKEND)
    left = []
    for _ in range(3):
        wrapper(torch.randn(8, 5))
        left.append(wrapper.trials_left)
    assert left == [1, 0, 0]


def test_a_compiled_step_contains_compiled_replicas():
    base, x = mlp(), torch.randn(8, 5)
    wrapper = wrapped(base)
    step = torch.compile(lambda x: wrapper(x).square().sum() * 2, backend=BACKEND)
    for _ in range(2):
        assert_close(step(x), base(x).square().sum() * 2)
    assert any("compiled" in line for line in wrapper.compile_report())


def test_one_lane_and_no_lane_are_compiled_by_a_compiled_wrapper():
    base, x = mlp(), torch.randn(8, 5)
    wrapper = torch.compile(DataParallel(base, ["cpu"]), backend=BACKEND)
    assert_close(wrapper(x), base(x))
    assert graphs() == 1


def test_the_functions_run_compiled_replicas_in_sequence(monkeypatch):
    threads = []
    base = Call(lambda self, x: _seen(threads, x) + 1)
    for module in (torch.compile(base, backend=BACKEND), nn.Sequential(torch.compile(base, backend=BACKEND))):
        data_parallel(module, torch.ones(8, 5), ["cpu"] * LANES)
    assert set(threads) == {threading.get_ident()}


class Custom(nn.Module):
    """Its replicas are made by its own method."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(5, 3)

    def forward(self, x):
        return self.inner(x)

    def _replicate_for_data_parallel(self):
        return super()._replicate_for_data_parallel()


@every_way
@pytest.mark.parametrize("make", [Custom, lambda: nn.Sequential(Custom())], ids=["root", "child"])
def test_modules_with_their_own_replication(way, make):
    wrapper = assert_equal_training(way, make(), torch.randn(4, 8, 5))
    assert wrapper.compile_report()[-1] == "3 forwards: compiled"


def test_recurrent_modules_which_dynamo_leaves_eager_say_so():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(5, 4, batch_first=True)

        def forward(self, x):
            return self.rnn(x)[0]

    for way in (compiled_module, compiled_in_place, compiled_wrapper):
        base = Recurrent()
        with pytest.warns(UserWarning, match="the replicas are not compiled, or in part: "):
            wrapper = assert_equal_training(way, base, torch.randn(3, 8, 2, 5))
        assert wrapper.compile_report()[0] == "3 forwards: eager"


def test_a_module_without_the_compilers_context_is_refused_in_one_line():
    base = mlp()
    base._compiled_call_impl = lambda x: x
    with pytest.raises(RuntimeError, match=r"finds no context of the compiler; wrap torch.compile\(module\) instead"):
        wrapped(base)(torch.ones(8, 5))
