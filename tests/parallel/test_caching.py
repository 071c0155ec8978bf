"""Replicas are cached, their state never is; what an older graph or anyone else uses is never written again."""

import contextlib
import copy
import gc
import io
import multiprocessing
import os
import pickle
import threading
import time
import weakref

import pytest
import torch
from torch import nn

from dpbench.parallel import DataParallel, Policy
from tests.parallel.models import Call, mlp
from tests.parallel.oracle import Chunked, assert_grads

LANES = 4


def wrap(base, **policy):
    return DataParallel(base, ["cpu"] * LANES, policy=Policy(**{"dispatch": "sequence", **policy}))


def sets_of(wrapper):
    return wrapper._replicas._sets


def flats_of(wrapper):
    """Addresses of the persistent memory of all sets."""
    return [
        copy._flat.data_ptr()
        for replica_set in sets_of(wrapper)
        for bucket in replica_set._broadcast._buckets
        for copy in bucket._copies
    ]


def train(wrapper, steps):
    for _ in range(steps):
        wrapper.zero_grad()
        wrapper(torch.randn(8, 5)).square().sum().backward()


def test_a_training_loop_uses_one_set_and_the_same_memory_throughout():
    wrapper = wrap(mlp())
    train(wrapper, 1)
    before = flats_of(wrapper)
    train(wrapper, 5)
    assert len(sets_of(wrapper)) == 1
    assert flats_of(wrapper) == before


@pytest.mark.parametrize("is_root", [False, True])
@pytest.mark.parametrize("inner", [nn.LSTM(5, 4, batch_first=True), nn.Linear(5, 4)], ids=["custom", "plain"])
def test_modules_that_replicate_in_a_way_of_their_own_do_not_hold_a_set(inner, is_root):
    class Own(Call):
        def _replicate_for_data_parallel(self):
            return super()._replicate_for_data_parallel()

    kind = Own if is_root else Call
    base = kind(lambda self, x: self.inner(x), inner=nn.Sequential(inner))
    wrapper = wrap(base)
    for _ in range(4):
        out = wrapper(torch.randn(8, 3, 5))
        (out[0] if isinstance(out, tuple) else out).sum().backward()
    assert len(sets_of(wrapper)) == 1


def test_short_and_long_batches_share_a_set():
    wrapper = wrap(mlp())
    for batch in (8, 1, 5, 8):
        wrapper(torch.randn(batch, 5)).sum().backward()
    assert len(sets_of(wrapper)) == 1


def test_without_the_technique_nothing_is_kept():
    wrapper = wrap(mlp(), cache_replicas=False)
    train(wrapper, 2)
    assert not sets_of(wrapper)


def test_replicas_are_gone_after_the_forward():
    seen = []

    def forward(self, x):
        self.big = torch.zeros(10)
        seen.append(weakref.ref(self.big))
        return self.inner(x)

    wrapper = wrap(Call(forward, inner=mlp()))
    out = wrapper(torch.randn(8, 5))
    assert all(reference() is None for reference in seen)
    assert out.requires_grad


def chunked_and_wrapped(make=mlp):
    base = make()
    return Chunked(copy.deepcopy(base), LANES), wrap(base)


def test_several_forwards_before_one_backward_each_keep_their_weights():
    expected, wrapper = chunked_and_wrapped()
    inputs = [torch.randn(8, 5) for _ in range(3)]
    results = []
    for module, base in ((expected, expected.base), (wrapper, wrapper.module)):
        losses = []
        for values in inputs:
            x = values.clone().requires_grad_()
            losses.append((module(x).square().sum(), x))
            for parameter in base.parameters():
                parameter.data.mul_(1.5)  # unseen by version counters
        sum(loss for loss, _ in losses).backward()
        results.append([x.grad for _, x in losses])
    # Only the other lanes' chunks: the first lane shares the base's memory, which was written unseen.
    for theirs, ours in zip(*results, strict=True):
        torch.testing.assert_close(ours[2:], theirs[2:])


@pytest.mark.parametrize("retain", [False, True])
def test_a_backward_after_a_later_forward_uses_the_weights_of_its_own(retain):
    base = mlp()
    wrapper, x = wrap(base), torch.randn(8, 5, requires_grad=True)
    loss = wrapper(x).tanh().sum()
    if retain:
        loss.backward(retain_graph=True)
        x.grad = None
    (want,) = torch.autograd.grad(base(x).tanh().sum(), x)
    for parameter in base.parameters():
        parameter.data.mul_(3)
    wrapper(x.detach()).sum().backward()
    loss.backward()
    torch.testing.assert_close(x.grad[2:], want[2:])


def test_weights_that_a_hook_kept_are_not_written_again():
    base, kept = mlp(), []
    handle = base[0].register_forward_hook(lambda module, *_: kept.append(module.weight.detach()))
    wrapper = wrap(base)
    train(wrapper, 1)
    handle.remove()
    values = [weight.clone() for weight in kept]
    with torch.no_grad():
        base[0].weight[:] = 0
    train(wrapper, 1)
    for weight, value in zip(kept[1:], values[1:], strict=True):
        torch.testing.assert_close(weight, value)


def test_a_shell_the_user_kept_is_neither_refreshed_nor_emptied():
    kept = []

    def forward(self, x):
        kept.append(self)
        return self.inner(x)

    wrapper = wrap(Call(forward, inner=mlp(), factor=1))
    wrapper(torch.randn(8, 5))
    wrapper.module.factor = 2
    wrapper(torch.randn(8, 5))
    assert [shell.factor for shell in kept] == [1] * LANES + [2] * LANES
    assert len({id(shell) for shell in kept}) == 2 * LANES
    assert kept[1].inner(torch.randn(2, 5)).shape == (2, 3)


KEPT_DICTS = {
    "state": lambda shell: vars(shell.inner[0]),
    "parameters": lambda shell: shell.inner[0]._parameters,
    "buffers": lambda shell: shell.inner[1]._buffers,
    "registered": lambda shell: shell.inner[2].register_buffer("own", torch.ones(1)) or shell.inner[2]._buffers,
}


@pytest.mark.parametrize("pick", KEPT_DICTS.values(), ids=KEPT_DICTS)
def test_a_dict_of_a_shell_that_the_user_kept_stays_as_it_is(pick):
    kept = []

    def forward(self, x):
        if self.is_kept:
            kept.append(pick(self))
        return self.inner(x)

    inner = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4, affine=False), nn.Linear(4, 3))
    wrapper, x = wrap(Call(forward, inner=inner, is_kept=True)), torch.randn(8, 5)
    wrapper(x)
    before = [dict(items) for items in kept]
    assert all(before)
    wrapper.module.is_kept = False
    for _ in range(2):
        wrapper(x)
    for now, then in zip(kept, before, strict=True):
        assert list(now) == list(then)
        assert all(now[name] is then[name] for name in then)


def test_a_child_that_a_hook_kept_holds_its_whole_set():
    kept = []
    base = mlp()
    handle = base[2].register_forward_hook(lambda module, *_: kept.append(module))
    wrapper = wrap(base)
    wrapper(torch.randn(8, 5))
    handle.remove()
    shells = set(map(id, kept))
    base[2].mark = "new"
    wrapper(torch.randn(8, 5))
    assert all(not hasattr(module, "mark") for module in kept)
    kept.clear()
    wrapper(torch.randn(8, 5))
    assert len(shells) == LANES
    assert len(sets_of(wrapper)) == 2


def test_a_failed_forward_holds_no_set_once_its_error_is_gone():
    def forward(self, x):
        raise KeyError

    wrapper = wrap(Call(forward, inner=mlp()))
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            with contextlib.suppress(KeyError):
                wrapper(torch.randn(8, 5))
    finally:
        gc.enable()
    assert len(sets_of(wrapper)) == 1


@pytest.mark.parametrize("is_graph", [True, False])
def test_weights_put_in_the_tables_for_one_call_are_let_go(is_graph):
    wrapper, factor = wrap(mlp()), torch.ones((), requires_grad=is_graph)
    wrapper(torch.randn(8, 5))
    weights = {name: weight.detach() * factor for name, weight in wrapper.named_parameters()}
    alive = [weakref.ref(weight) for weight in weights.values()]
    torch.func.functional_call(wrapper, weights, torch.randn(8, 5))
    del weights
    assert not any(reference() is not None for reference in alive)


def test_the_pool_of_sets_is_bounded():
    kept = []

    def forward(self, x):
        kept.append(self)
        return x

    wrapper = wrap(Call(forward))
    for _ in range(20):
        wrapper(torch.randn(8))
    assert len(sets_of(wrapper)) <= 8


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_recomputes_with_the_weights_of_its_forward(reentrant, dispatch):
    from torch.utils.checkpoint import checkpoint

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=reentrant)

    base = Call(forward, inner=mlp(), scale=1.0)
    wrapper = wrap(base, dispatch=dispatch)
    x = torch.randn(8, 5, requires_grad=True)
    loss = wrapper(x).tanh().sum()
    (want,) = torch.autograd.grad(base.inner(x).tanh().sum(), x)
    with torch.no_grad():
        for parameter in base.parameters():
            parameter.data.mul_(3)
    second = wrapper(x.detach().requires_grad_()).sum()
    loss.backward()  # recomputes now, on the first forward's shells
    torch.testing.assert_close(x.grad[2:], want[2:])
    second.backward()


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_gives_the_gradients_of_the_plain_module(reentrant, dispatch):
    from torch.utils.checkpoint import checkpoint

    def forward(self, x):
        return checkpoint(self.b, checkpoint(self.a, x, use_reentrant=reentrant), use_reentrant=reentrant)

    base = Call(forward, a=nn.Linear(5, 5), b=nn.Linear(5, 3))
    expected = copy.deepcopy(base)
    x = torch.randn(8, 5)
    wrapper = wrap(base, dispatch=dispatch)
    for _ in range(3):
        base.zero_grad()
        wrapper(x.clone().requires_grad_()).square().sum().backward()
    expected(x.clone().requires_grad_()).square().sum().backward()
    assert_grads(base, {name: p.grad for name, p in expected.named_parameters()})


@pytest.mark.parametrize("is_root", [False, True])
@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_of_what_replicates_in_a_way_of_its_own_keeps_all_below_it(reentrant, is_root):
    from torch.utils.checkpoint import checkpoint

    class Own(nn.Sequential):
        def _replicate_for_data_parallel(self):
            return super()._replicate_for_data_parallel()

        def forward(self, x):
            return checkpoint(super().forward, x, use_reentrant=reentrant)

    base = Own(mlp()) if is_root else nn.Sequential(Own(mlp()))
    wrapper, x = wrap(base), torch.randn(8, 5, requires_grad=True)
    base(x).square().sum().backward()
    want, x.grad = x.grad, None
    loss = wrapper(x).square().sum()
    wrapper(x.detach().requires_grad_())
    loss.backward()
    torch.testing.assert_close(x.grad, want)


REGISTERING = {
    "replaced": lambda self: setattr(self, "spare", nn.Identity()),
    "named twice": lambda self: setattr(self, "current", self.inner[0]),
    "deleted": lambda self: delattr(self, "spare"),
}


@pytest.mark.parametrize("register", REGISTERING.values(), ids=REGISTERING)
def test_modules_that_a_forward_registers_do_not_hold_a_set(register):
    def forward(self, x):
        register(self)
        return self.inner(x)

    wrapper = wrap(Call(forward, inner=mlp(), spare=nn.Linear(2, 2)))
    train(wrapper, 3)
    assert len(sets_of(wrapper)) == 1


@pytest.mark.filterwarnings("ignore:the replicas of a compiled module run it eagerly")
def test_modules_that_a_compiled_ones_forward_registers_do_not_hold_a_set():
    def forward(self, x):
        self.current = self.inner[0]
        return self.inner(x)

    wrapper = wrap(torch.compile(Call(forward, inner=mlp()), backend="eager"))
    train(wrapper, 3)
    assert len(sets_of(wrapper)) == 1


def test_scripted_modules_use_one_set_throughout():
    wrapper = wrap(torch.jit.script(mlp()))
    train(wrapper, 1)
    first = sets_of(wrapper)[0]
    train(wrapper, 2)
    assert sets_of(wrapper) == [first]


def test_a_child_that_a_forward_replaced_and_the_user_kept_holds_its_set():
    kept = []

    def forward(self, x):
        kept.append(self.spare)
        self.spare = nn.Identity()
        return x

    wrapper = wrap(Call(forward, spare=nn.Linear(2, 2)))
    wrapper(torch.ones(8))
    want = kept[1].weight.clone()
    with torch.no_grad():
        wrapper.module.spare.weight.mul_(2)
    wrapper(torch.ones(8))
    torch.testing.assert_close(kept[1].weight, want)


def test_what_a_forward_writes_to_slots_is_gone_too():
    class Slotted(nn.Module):
        __slots__ = ("cached",)

        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, x):
            if not hasattr(self, "cached"):
                self.cached = self.weight.clone()
            return x * self.cached

    wrapper = wrap(Slotted())
    wrapper(torch.ones(4))
    with torch.no_grad():
        wrapper.module.weight.mul_(2)
    assert wrapper(torch.ones(4)).tolist() == [2] * 4


@pytest.mark.parametrize(("dispatch", "naps"), [("sequence", {0, 1}), ("threads", {0}), ("auto", {0, 1})])
def test_a_checkpoint_around_the_wrapper_recomputes_in_the_order_of_its_forward(dispatch, naps):
    # It knows what is saved by its number alone, and the lanes share it.
    from torch.utils.checkpoint import checkpoint

    calls = []

    def forward(self, x):
        calls.append(x)
        if (len(calls) - 1) // LANES in naps and x[0, 0] == 0:
            time.sleep(0.05)  # the first lane comes last, if the lanes run at the same time
        return (x * self.weight).square()

    base = Call(forward, weight=nn.Parameter(torch.full((1,), 3.0)))
    x = torch.arange(8.0)[:, None].requires_grad_()
    checkpoint(wrap(base, dispatch=dispatch), x, use_reentrant=False).sum().backward()
    torch.testing.assert_close(x.grad, 18 * x.detach())
    torch.testing.assert_close(base.weight.grad, 6 * x.detach().square().sum()[None])


TREE_CHANGES = {
    "module replaced": lambda base: base.__setitem__(0, nn.Linear(5, 7)),
    "module added": lambda base: base.append(nn.Linear(3, 2)),
    "module removed": lambda base: base.__delitem__(2),
    "parameter replaced": lambda base: setattr(base[0], "bias", nn.Parameter(torch.ones(7))),
    "parameter removed": lambda base: setattr(base[0], "bias", None),
    "buffer added": lambda base: base[0].register_buffer("extra", torch.ones(2)),
    "dtype": lambda base: base.to(torch.float64).float(),
    "shape": lambda base: setattr(base[2].bias, "data", torch.ones(1)),
    "class": lambda base: setattr(base[1], "__class__", nn.Sigmoid),
    "memory format": lambda base: setattr(base[0].weight, "data", base[0].weight.data.T.contiguous().T),
    "tied": lambda base: setattr(base[0], "bias", base[0].weight),
}


@pytest.mark.parametrize("change", TREE_CHANGES.values(), ids=TREE_CHANGES)
def test_a_changed_tree_is_seen_at_the_next_forward(change):
    base = mlp()
    wrapper, x = wrap(base), torch.randn(8, 5)
    wrapper(x)
    change(base)
    try:
        want = base(x)
    except RuntimeError as error:
        with pytest.raises(type(error)):
            wrapper(x)
        return
    torch.testing.assert_close(wrapper(x), want)


ALIKE_CHANGES = {
    "dtype": lambda base: base.double(),
    "shape": lambda base: setattr(base[2].bias, "data", torch.ones(1)),
    "memory format": lambda base: setattr(base[0].weight, "data", base[0].weight.data.T.contiguous().T),
    "frozen": lambda base: base[0].weight.requires_grad_(False),
    "renamed": lambda base: base[2]._parameters.update(other=base[2]._parameters.pop("bias")),
}


@pytest.mark.parametrize("change", ALIKE_CHANGES.values(), ids=ALIKE_CHANGES)
def test_replicas_have_names_and_layouts_of_the_changed_base(change):
    def seen(module):
        return [(name, p.shape, p.dtype, p.stride(), p.requires_grad) for name, p in module.named_parameters()]

    base = mlp()
    wrapper = wrap(base)
    wrapper(torch.randn(8, 5))
    change(base)
    assert [seen(replica) for replica in wrapper.replicate(base, wrapper.device_ids)] == [seen(base)] * LANES


def test_a_scripted_modules_new_parameter_is_a_changed_tree():
    scripted, x = torch.jit.script(nn.Linear(5, 4)), torch.randn(8, 5)
    wrapper = wrap(nn.Sequential(scripted))
    wrapper(x)
    scripted.weight = nn.Parameter(torch.ones(4, 5))
    torch.testing.assert_close(wrapper(x), scripted(x))


def test_two_modules_swapping_a_name_is_a_changed_tree():
    def forward(self, x):
        return x * getattr(self.a, "w", 1) + getattr(self.b, "w", 1)

    base = Call(forward, a=nn.Module(), b=nn.Module())
    base.a.w = nn.Parameter(torch.full((1,), 3.0))
    wrapper = wrap(base)
    assert wrapper(torch.ones(4)).tolist() == [4] * 4
    base.b.w = base.a.w
    del base.a.w
    assert wrapper(torch.ones(4)).tolist() == [4] * 4
    assert wrapper(torch.zeros(4)).tolist() == [3] * 4


@pytest.mark.parametrize("value", [2, 3])
def test_attributes_set_on_the_base_count_at_the_next_forward(value):
    # pytorch PR #4216: "dp.module.pool.scale_factor *= 2" must take effect
    base = Call(lambda self, x: x * self.pool.factor, pool=nn.Module())
    base.pool.factor = 1
    wrapper = wrap(base)
    wrapper(torch.ones(4))
    wrapper.module.pool.factor *= value
    assert wrapper(torch.ones(4)).tolist() == [value] * 4


def test_the_training_flag_counts_at_the_next_forward():
    wrapper = wrap(nn.Dropout(1.0))
    assert wrapper(torch.ones(4)).sum() == 0
    wrapper.eval()
    assert wrapper(torch.ones(4)).sum() == 4


def test_a_copy_shares_nothing_and_a_pickle_is_one(dispatch):
    wrapper = wrap(mlp(), dispatch=dispatch)
    x = torch.randn(8, 5)
    want = wrapper(x)
    for twin in (copy.deepcopy(wrapper), pickle.loads(pickle.dumps(wrapper))):
        torch.testing.assert_close(twin(x), want)
        assert twin.policy == wrapper.policy
        with torch.no_grad():
            twin.module[0].weight.zero_()
        torch.testing.assert_close(wrapper(x), want)


def test_a_wrapper_can_be_saved_and_loaded():
    wrapper, saved = wrap(mlp()), io.BytesIO()
    torch.save(wrapper, saved)
    saved.seek(0)
    x = torch.randn(8, 5)
    torch.testing.assert_close(torch.load(saved, weights_only=False)(x), wrapper(x))


def lane_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("dp-lane")]


def test_threads_live_as_long_as_their_wrapper():
    gc.collect()  # wrappers of other tests that their own forward refers to
    before = set(lane_threads())
    wrapper = wrap(mlp(), dispatch="threads")
    assert set(lane_threads()) == before
    for _ in range(3):
        wrapper(torch.randn(8, 5))
    mine = set(lane_threads()) - before
    assert len(mine) == LANES - 1
    del wrapper
    assert all(has_ended(thread) for thread in mine)


def has_ended(thread):
    """Soon, that is: nobody waits for it."""
    thread.join(timeout=60)
    return not thread.is_alive()


def test_a_wrapper_that_dies_waits_for_nobody():
    """It may do so in a thread for which its own wait, as one does that is just starting."""
    never, gone = threading.Event(), threading.Event()
    wrapper = wrap(mlp(), dispatch="threads")
    wrapper(torch.randn(8, 5))
    (crew,) = wrapper._dispatcher._crews._idle
    crew._threads[0].submit(never.wait)
    held = [wrapper]
    del wrapper, crew
    dying = threading.Thread(target=lambda: (held.clear(), gc.collect(), gone.set()), daemon=True)
    dying.start()
    assert gone.wait(timeout=60)
    never.set()


def test_a_wrapper_dying_on_its_own_thread_ends_its_threads():
    holder, mine = [], set()

    def forward(self, x):
        holder.clear()  # the last reference but the caller's own
        mine.add(threading.current_thread())
        return x

    gc.collect()
    holder.append(wrap(Call(forward), dispatch="threads"))
    holder[0](torch.ones(4))
    gc.collect()
    assert len(mine) == LANES
    assert all(has_ended(thread) for thread in mine - {threading.current_thread()})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_process_has_threads_of_its_own():
    base = Call(lambda self, x: x * self.weight, weight=nn.Parameter(torch.full((1,), 3.0)))
    wrapper = wrap(base, dispatch="threads")
    wrapper(torch.ones(8))

    def child():
        is_right = wrapper(torch.ones(8)).tolist() == [3.0] * 8
        os._exit(
            0 if is_right and len(wrapper._dispatcher._crews._idle) == 1 else 1
        )  # and the parent's are not its own

    process = multiprocessing.get_context("fork").Process(target=child, daemon=True)
    process.start()
    process.join(20)
    is_hanging = process.exitcode is None
    process.kill()
    assert not is_hanging
    assert process.exitcode == 0
