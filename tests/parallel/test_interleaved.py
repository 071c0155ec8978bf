"""Interleaved dispatch: all lanes are under way, one runs at a time, in the same order in every run."""

import contextlib
import copy
import pickle
import signal
import sys
import threading
import time

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch._guards import CompileContext, compile_context
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from dpbench.parallel import DataParallel, Policy
from dpbench.parallel.interleaved import MOST_LEAVES
from dpbench.parallel.tables import ChildTable, here
from dpbench.parallel.thread_state import setting_values
from tests.parallel.models import Call, mlp, normed
from tests.parallel.on_lanes import LANES, no_warnings, run_at_once, sets_of, wrap

pytestmark = pytest.mark.filterwarnings("error")  # the watchdog would hide a baton that got lost

X = torch.arange(float(LANES)).view(LANES, 1)
"""One row for each lane: its number."""


class Noted(nn.Module):
    """A leaf that writes down its lane and its own number."""

    def __init__(self, number, log):
        super().__init__()
        self.number, self.log = number, log

    def forward(self, x):
        self.log.append((int(x[0, 0].item()), self.number))
        return x


def leaves(count=10):
    log = []
    return [Noted(number, log) for number in range(count)], log


def turns(count):
    """The numbers of `count` leaves, divided into a lane's turns."""
    numbers, sizes = [*range(count)], [1, 2, 4, 8] + count * [MOST_LEAVES]
    return [numbers[sum(sizes[:i]) : sum(sizes[: i + 1])] for i in range(len(sizes)) if sum(sizes[:i]) < count]


def in_turns(count=10, lanes=LANES):
    """The order of `count` leaves on each lane."""
    return [(lane, i) for turn in turns(count) for lane in range(lanes) for i in turn]


def in_sequence(count, lanes=LANES):
    return [(lane, i) for lane in range(lanes) for i in range(count)]


def interleaved(base, **policy):
    return wrap(base, dispatch="interleaved", **policy)


def test_lanes_alternate_in_the_same_order_in_every_run():
    members, log = leaves()
    wrapper = interleaved(nn.Sequential(*members))
    for _ in range(20):
        log.clear()
        wrapper(X)
        assert log == in_turns()


def GraphOf(members):
    tracer = torch.fx.Tracer()
    tracer.is_leaf_module = lambda module, name: isinstance(module, Noted)
    root = nn.Sequential(nn.Sequential(*members))
    return torch.fx.GraphModule(root, tracer.trace(root))


@contextlib.contextmanager
def default_double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def attributes(members):
    named = {f"m{m.number}": m for m in members}
    return Call(lambda self, x: [getattr(self, name)(x) for name in named][-1], **named)


def in_a_thread(self, x):
    thread = threading.Thread(target=self.inner, args=(x,))
    thread.start()
    thread.join()
    return x


def saved_tensor_hooks():
    return torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x)


IN_TURNS = {  # wherever the children are kept
    "attributes": attributes,
    "module list": lambda members: Call(lambda self, x: [m(x) for m in self.all][-1], all=nn.ModuleList(members)),
    "by index": lambda members: Call(
        lambda self, x: [self.all[i](x) for i in range(len(self.all))][-1], all=nn.ModuleList(members)
    ),
    "module dict": lambda members: Call(
        lambda self, x: [m(x) for m in self.all.values()][-1], all=nn.ModuleDict({str(m.number): m for m in members})
    ),
    "nested": lambda members: nn.Sequential(nn.Sequential(*members[:5]), nn.Sequential(*members[5:])),
    "graph": lambda members: nn.Sequential(GraphOf(members), nn.Identity()),
}
AROUND = {  # what the caller has set
    "no_grad": (torch.no_grad, in_turns),
    "inference_mode": (torch.inference_mode, in_turns),
    "autocast": (lambda: torch.autocast("cpu"), in_turns),
    "saved-tensor hooks": (saved_tensor_hooks, in_sequence),
}
SECTIONS = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "saved-tensor hooks": saved_tensor_hooks,
    "forward-mode AD": torch.autograd.forward_ad.dual_level,
    "default dtype": default_double,
    "parametrize.cached": parametrize.cached,
    "attention": lambda: torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
    "compiler": lambda: compile_context(CompileContext(None)),
    "dispatch mode": lambda: FlopCounterMode(display=False),
}


def within(section):
    def forward(self, x):
        with section():
            return self.inner(x) + 0

    return lambda members: Call(forward, inner=nn.Sequential(*members))


def of_inner(forward):
    return lambda members: Call(forward, inner=nn.Sequential(*members))


ORDERS = {
    **{name: (make, contextlib.nullcontext, in_turns) for name, make in IN_TURNS.items()},
    **{f"{name} around": (lambda members: nn.Sequential(*members), *case) for name, case in AROUND.items()},
    **{f"within {name}": (within(kind), contextlib.nullcontext, in_sequence) for name, kind in SECTIONS.items()},
    "within a transform": (
        of_inner(lambda self, x: torch.func.grad(lambda x: self.inner(x).sum())(x)),
        contextlib.nullcontext,
        in_sequence,
    ),
    "in a thread that the forward starts": (of_inner(in_a_thread), contextlib.nullcontext, in_sequence),
}


@pytest.mark.parametrize("name", ORDERS)
def test_lanes_alternate_but_in_sections_that_must_be_whole(name):
    make, around, order = ORDERS[name]
    members, log = leaves(12)
    before = setting_values()
    wrapper = interleaved(make(members))
    with around():
        wrapper(X)
    assert log == order(12)
    assert setting_values() == before


def test_fewer_chunks_than_lanes_take_turns():
    members, log = leaves()
    interleaved(nn.Sequential(*members))(X[:2])
    assert log == in_turns(lanes=2)
    log.clear()
    interleaved(nn.Sequential(*members))(X[:1])
    assert log == in_turns(lanes=1)


def test_lanes_of_different_length_go_on_without_those_that_have_ended():
    members, log = leaves(12)

    def forward(self, x):
        for i in range(12 if x.item() in (1, 3) else 3):
            self.all[i](x)
        return x

    interleaved(Call(forward, all=nn.ModuleList(members)))(X)
    lanes = [lane for lane, number in log if number in {turn[0] for turn in turns(12)}]
    assert lanes == [0, 1, 2, 3] * 2 + [1, 3] * 2


@pytest.mark.parametrize("make", [mlp, normed])
def test_a_step_equals_that_in_sequence_exactly(make):
    base = make().double()

    def trained(dispatch):
        module = copy.deepcopy(base)
        wrapper, values = wrap(module, dispatch=dispatch), []
        for i in range(3):
            x = torch.randn(16, 5, generator=torch.Generator().manual_seed(i)).double()
            output = wrapper(x)
            output.square().sum().backward()
            values += [output, *[parameter.grad.clone() for parameter in module.parameters()], *module.buffers()]
        return values

    assert all(map(torch.equal, trained("interleaved"), trained("sequence")))


def test_hooks_of_the_user_see_what_they_saw():
    def seen(dispatch):
        torch.manual_seed(1)
        base, log = normed(), {}
        for name, module in base.named_modules():
            for kind in ("forward_pre", "forward", "full_backward"):
                note = log.setdefault((name, kind), [])
                register = getattr(module, f"register_{kind}_hook")
                register(lambda module, *given, note=note: note.append((type(module), str(given))))
        x = torch.randn(8, 5, generator=torch.Generator().manual_seed(2)).requires_grad_()
        wrap(base, dispatch=dispatch)(x).sum().backward()
        return {key: sorted(map(str, note)) for key, note in log.items()}

    assert seen("interleaved") == seen("sequence")


def test_a_replica_has_no_hook_and_is_the_same_again():
    seen = []

    def forward(self, x):
        seen.append((id(self), len(self._forward_pre_hooks), type(self.inner), "forward" in self.__dict__))
        return self.inner(x)

    wrapper = interleaved(Call(forward, inner=mlp()))
    for _ in range(3):
        wrapper(torch.randn(8, 5))
    assert len(sets_of(wrapper)) == 1
    assert {rest for _, *rest in map(tuple, seen) for rest in [tuple(rest)]} == {(0, nn.Sequential, False)}
    assert len({first for first, *_ in seen}) == LANES


@pytest.mark.parametrize("failing", [{0}, {LANES - 1}, {1, 2}, set(range(LANES))])
def test_the_first_error_is_raised_when_all_have_ended(failing):
    members, log = leaves()

    def forward(self, x):
        for member in self.all:
            member(x)
            if x.item() in failing and member.number == 1 + int(x.item()):
                raise KeyError(int(x.item()))
        log.append("end")
        return x

    wrapper = interleaved(Call(forward, all=nn.ModuleList(members)))
    for _ in range(2):
        log.clear()
        with pytest.raises(KeyError, match=f"in replica {min(failing)} "):
            wrapper(X)
        assert log.count("end") == LANES - len(failing)


@pytest.mark.parametrize("lane", [0, LANES - 1])
def test_an_interrupt_in_a_lane_leaves_no_lane_waiting(lane):
    ends, is_interrupted = [], [True]

    def forward(self, x):
        for i, member in enumerate(self.all):
            if is_interrupted[0] and i == 5 and x.item() == lane:
                raise KeyboardInterrupt
            member(x)
        ends.append(int(x.item()))
        return x

    members, log = leaves(12)
    wrapper = interleaved(Call(forward, all=nn.ModuleList(members)))
    with pytest.raises(KeyboardInterrupt):
        wrapper(X)
    assert sorted(ends) == [i for i in range(LANES) if i != lane]
    is_interrupted[0] = False
    log.clear()
    assert torch.equal(wrapper(X), X)
    assert log == in_turns(12)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no timer that interrupts")
def test_an_interrupt_of_a_lane_that_waits_leaves_no_lane_waiting():
    members, _ = leaves(12)
    ends, main = [], threading.main_thread()

    def forward(self, x):
        for member in self.all:
            member(x)
            if x.item() == 1 and member.number == 3 and is_slow:
                signal.pthread_kill(main.ident, signal.SIGUSR1)  # lane 0 runs in the main thread, and waits
                time.sleep(0.2)
        ends.append(int(x.item()))
        return x

    def interrupt(*_):
        raise KeyboardInterrupt

    wrapper, is_slow = interleaved(Call(forward, all=nn.ModuleList(members))), [True]
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            wrapper(X)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert sorted(ends) == [1, 2, 3]
    is_slow.clear()
    assert torch.equal(wrapper(X), X)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows what a thread waits for")
def test_a_lock_that_a_waiting_lane_holds_stops_no_other_lane():
    members, _ = leaves(12)
    lock = threading.Lock()

    def forward(self, x):
        with lock:
            return self.inner(x)

    with pytest.warns(UserWarning, match="wait for each other"):
        assert torch.equal(interleaved(Call(forward, inner=nn.Sequential(*members)))(X), X)


class Drawing(nn.Module):
    def forward(self, x):
        return torch.cat([x, torch.rand(len(x), 1).double()], 1)


def test_draws_follow_the_order_of_the_turns():
    base = nn.Sequential(*[Drawing() for _ in range(3)])
    wrapper = interleaved(base)
    outputs = []
    with no_warnings():
        for _ in range(20):
            torch.manual_seed(5)
            outputs.append(wrapper(torch.zeros(LANES, 1).double()))
    assert all(torch.equal(output, outputs[0]) for output in outputs)
    torch.manual_seed(5)
    drawn = torch.stack([torch.rand(1, 1).double()[0, 0] for _ in range(3 * LANES)])
    first, second = drawn[:LANES].view(LANES, 1), drawn[LANES:].view(LANES, 2)
    assert torch.equal(outputs[0][:, 1:], torch.cat([first, second], 1))


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_draws_again_what_its_forward_drew(reentrant):
    dropped = nn.Sequential(*[nn.Dropout(0.3) for _ in range(12)])
    base = Call(lambda self, x: checkpoint(self.inner, x, use_reentrant=reentrant), inner=dropped)
    x = torch.ones(64, 9, requires_grad=True)
    output = interleaved(base)(x)
    output.sum().backward()
    assert torch.equal(x.grad, output)


def test_lanes_take_turns_between_checkpoints_of_whole_blocks():
    members, log = leaves(12)
    blocks = [nn.Sequential(*members[i : i + 4]) for i in range(0, 12, 4)]

    def forward(self, x):
        for i in range(3):
            x = checkpoint(self.all[i], x, use_reentrant=False)
        return x

    interleaved(Call(forward, all=nn.ModuleList(blocks)))(X.clone().requires_grad_())
    assert log == [(lane, i) for start in (0, 4, 8) for lane in range(LANES) for i in range(start, start + 4)]


@torch.no_grad()  # else dynamo reads `.grad` of the replicas' weights, and torch warns
def test_functions_that_a_forward_compiles_get_the_same_graphs_as_in_sequence():
    def graphs(dispatch):
        torch._dynamo.reset()
        counter = CompileCounter()
        pair = torch.compile(lambda module, x: module.b(module.a(x)).relu(), backend=counter)
        stack = torch.compile(lambda module, x: module(x) + 1, backend=counter)
        members = {name: nn.Linear(5, 5) for name in "abcd"}
        base = Call(lambda self, x: stack(self.e, pair(self, self.c(self.d(x)))), e=mlp(), **members)
        x = torch.randn(8, 5)
        output = wrap(base, dispatch=dispatch)(x)
        torch.testing.assert_close(output, stack(base.e, pair(base, base.c(base.d(x)))))
        return counter.frame_count, counter.op_count

    assert graphs("interleaved") == graphs("sequence")


def test_parametrized_weights_that_are_cached_are_each_lanes_own():
    def forward(self, x):
        with parametrize.cached():
            return self.inner(self.inner(x))

    base = Call(forward, inner=parametrizations.weight_norm(nn.Linear(3, 3)))
    x = torch.randn(8, 3)
    torch.testing.assert_close(interleaved(base)(x), base(x))


def test_lanes_go_on_in_turns_after_a_wrapper_that_they_have_called():
    members, log = leaves()
    within = DataParallel(mlp(), ["cpu"] * 2, policy=Policy(dispatch="interleaved"))

    def forward(self, x):
        within(torch.randn(2, 5))
        for i in range(10):
            self.all[i](x)
        return x

    wrapper = interleaved(Call(forward, all=nn.ModuleList(members)))
    wrapper(X)
    assert log == in_turns()
    assert here.lane is None


def test_several_forwards_at_once_take_turns_on_their_own():
    members, _ = leaves()
    wrapper = interleaved(nn.Sequential(*members, nn.Linear(1, 1)))
    results = []
    run_at_once(lambda _: results.append(wrapper(X).detach()), range(4))
    assert len(results) == 4
    assert all(torch.equal(result, results[0]) for result in results)


def test_copies_of_a_replica_have_plain_tables():
    copies = []

    def forward(self, x):
        copies.extend([copy.deepcopy(self.inner), pickle.loads(pickle.dumps(self.inner))])
        assert type(self.inner._modules) is ChildTable
        return self.inner(x)

    base = Call(forward, inner=mlp())
    x = torch.randn(4, 5)
    with torch.no_grad():
        want = interleaved(base)(x)
    assert {type(module._modules) for module in copies} == {dict}
    torch.testing.assert_close(copies[0](x), want)


def test_only_policies_that_may_interleave_change_the_tables():
    kinds = []

    def forward(self, x):
        kinds.append(type(self._modules))
        return x

    for dispatch in ("sequence", "threads", "auto", "interleaved"):
        wrap(Call(forward, inner=mlp()), dispatch=dispatch)(X)
    assert kinds == [dict] * 3 * LANES + [ChildTable] * LANES


def test_auto_tries_what_the_devices_can_gain_from():
    cpu, cuda = torch.device("cpu"), torch.device("cuda:0")
    assert Policy().ways([cpu] * 4) == ("sequence", "threads")
    assert Policy().ways([cuda] * 2) == ("sequence", "threads", "interleaved")
    assert Policy(dispatch="interleaved").ways([cpu]) == ("interleaved",)
