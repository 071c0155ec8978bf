"""Properties that CPU lanes cannot show: several devices, their indices, corrupting links."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from dpbench.parallel import (
    DataParallel,
    Policy,
    data_parallel,
    gather,
    parallel_apply,
    replicate,
    scatter,
    scatter_kwargs,
    transfer,
)
from dpbench.records.recording import Copy
from dpbench.simulator import recording
from tests.parallel.models import Call, mlp, normed
from tests.parallel.on_lanes import no_warnings

FOUR = [f"sim:{i}" for i in range(4)]
LINKS = 2 * 3  # a chain's hops over four devices, in both directions


def test_indices_are_those_of_the_accelerator():
    wrapper = DataParallel(mlp().to("sim:0"), [0, torch.device("sim", 2), "sim:1"], output_device=1)
    assert (wrapper.device_ids, wrapper.output_device) == ([0, 2, 1], 1)
    assert wrapper.src_device_obj == torch.device("sim:0")


def test_without_devices_all_are_used():
    wrapper = DataParallel(mlp().to("sim:0"))
    assert wrapper.device_ids == [0, 1, 2, 3]
    assert wrapper(torch.randn(8, 5)).device == torch.device("sim:0")


def test_modules_without_devices_and_tensors_run_on_the_current_device():
    with torch.sim.device(2):
        assert parallel_apply([Call(lambda self, x: torch.sim.current_device())] * 2, [None, None]) == [2, 2]


@pytest.mark.parametrize("device_ids", [[0, 4], ["sim:7"], [-2]])
def test_a_device_that_is_not_there_is_named(device_ids):
    with pytest.raises((ValueError, RuntimeError), match=r"4|-2"):
        DataParallel(mlp(), device_ids)


def test_replicas_run_where_their_weights_are():
    seen = []

    def forward(self, x):
        here = next(self.parameters()).device
        seen.append((x.device.index, here.index, torch.sim.current_device()))
        return self.inner(x)

    for dispatch in ("sequence", "threads"):
        seen.clear()
        base = Call(forward, inner=mlp()).to("sim:0")
        DataParallel(base, FOUR, policy=Policy(dispatch=dispatch))(torch.randn(8, 5))
        assert sorted(seen) == [(i, i, i) for i in range(4)]


def test_the_order_of_devices_is_the_callers():
    base = mlp().to("sim:2")
    x = torch.randn(8, 5)
    out = DataParallel(base, [2, 0, 1])(x)
    assert out.device == torch.device("sim:2")
    torch.testing.assert_close(out.cpu(), base(x.to("sim:2")).cpu())


@pytest.mark.parametrize("output", [3, "sim:1", "cpu", -1])
def test_the_output_device_is_the_callers(output):
    out = DataParallel(mlp().to("sim:0"), FOUR, output)(torch.randn(8, 5))
    expected = torch.device({3: "sim:3", -1: "cpu"}.get(output, output))
    assert out.device == expected
    assert data_parallel(mlp().to("sim:0"), torch.randn(8, 5), FOUR, output).device == expected


def test_a_base_elsewhere_names_both_devices():
    with pytest.raises(
        RuntimeError, match=r"on device sim:0 \(device_ids\[0\]\) but found one of them on device: sim:1"
    ):
        DataParallel(mlp().to("sim:1"), FOUR)(torch.randn(8, 5))


def test_one_device_moves_the_module_and_the_input_and_gathers_nothing():
    wrapper = DataParallel(mlp(), [1], output_device=0)
    assert wrapper.module[0].weight.device == torch.device("sim:1")
    assert wrapper(torch.randn(3, 5)).device == torch.device("sim:1")


def test_scatter_sends_and_keeps_views():
    x = torch.randn(8, 2).to("sim:1")
    chunks = scatter(x, FOUR)
    assert [chunk.device.index for chunk in chunks] == [0, 1, 2, 3]
    assert torch.sim.storage_id(chunks[1]) == torch.sim.storage_id(x)


def test_steps_compose_by_hand():
    base = normed().to("sim:0").eval()
    x = torch.randn(8, 5)
    inputs = [(chunk,) for chunk in scatter(x, FOUR)]
    outputs = parallel_apply(replicate(base, FOUR), inputs, None, FOUR)
    torch.testing.assert_close(gather(outputs, "cpu"), base(x.to("sim:0")).cpu())
    torch.testing.assert_close(data_parallel(base, x, FOUR).cpu(), base(x.to("sim:0")).cpu())


def test_gather_across_devices_is_differentiable_twice():
    def joined(*tensors):
        return gather([t.to(device) for t, device in zip(tensors, FOUR, strict=False)], "sim:0").square().cpu()

    tensors = [torch.randn(n, 2, dtype=torch.double, requires_grad=True) for n in (2, 1, 2)]
    assert torch.autograd.gradcheck(joined, tensors)
    assert torch.autograd.gradgradcheck(joined, tensors)


def test_gather_keeps_the_memory_format_if_all_parts_have_it():
    last = torch.ones(1, 2, 3, 3).contiguous(memory_format=torch.channels_last)
    for parts, is_last in (((last, last), True), ((last, last.contiguous()), False)):
        joined = gather([part.to(device) for part, device in zip(parts, FOUR, strict=False)], "sim:0")
        assert joined.is_contiguous(memory_format=torch.channels_last) is is_last
    single = [torch.ones(1, device="sim:0"), torch.ones(1, dtype=torch.double, device="sim:1")]
    assert gather(single, "sim:0").dtype == torch.double  # as on one device


def test_gather_refuses_sizes_that_do_not_fit_instead_of_stretching_them():
    with pytest.raises(RuntimeError, match=r"Gather got an input of invalid size: got \[2, 1\], but expected \[2, 3\]"):
        gather([torch.ones(2, 3, device="sim:0"), torch.ones(2, 1, device="sim:1")], "sim:0")
    with pytest.raises(IndexError):
        gather([torch.ones((), device="sim:0"), torch.ones((), device="sim:1")], "sim:0", 1)


def test_scatter_and_replicas_are_differentiable_twice():
    base = nn.Sequential(nn.Linear(3, 2), nn.Tanh()).double().to("sim:0")
    wrapper = DataParallel(base, FOUR[:2], policy=Policy(bucket_bytes=20, first_bucket_bytes=20, dispatch="sequence"))
    x = torch.randn(3, 3, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: wrapper(x.to("sim:0")).cpu(), (x,))
    assert torch.autograd.gradgradcheck(lambda x: wrapper(x.to("sim:0")).cpu(), (x,))


def test_sums_are_no_views_of_each_others_memory():
    base = nn.Linear(5, 4).to("sim:0")
    out = DataParallel(base, FOUR[:3])(torch.randn(6, 5))
    weight, bias = torch.autograd.grad(out.square().sum(), [base.weight, base.bias])
    before = bias._version
    weight.zero_()
    assert bias._version == before
    weight.detach_()  # refused for a view


@pytest.mark.usefixtures("_fresh_links")
def test_b7_links_are_tested_once_and_a_sound_link_is_used_directly():
    with no_warnings():
        DataParallel(mlp().to("sim:0"), FOUR)
    assert transfer._peers_are_sound.cache_info().currsize == LINKS
    DataParallel(mlp().to("sim:0"), FOUR)
    assert transfer._peers_are_sound.cache_info().misses == LINKS


@pytest.mark.usefixtures("_fresh_links")
def test_b7_links_are_tested_under_a_default_device_too():
    base = mlp().to("sim:0")
    with torch.device("sim:1"), no_warnings():
        DataParallel(base, FOUR)
    assert transfer._peers_are_sound.cache_info().currsize == LINKS


def test_b7_a_corrupting_link_is_warned_of_and_avoided(corrupt):
    base, x = normed().to("sim:0"), torch.randn(16, 5)
    corrupt("sim:2")
    with pytest.warns(UserWarning, match="copies from sim:0 to sim:2 arrive corrupted; they go through the host"):
        wrapper = DataParallel(base, FOUR)
    with recording() as recorded:
        wrapper(x).sum().backward()
    links = {(e.source, e.destination) for e in recorded.events if isinstance(e, Copy)}
    assert (0, 2) not in links
    assert {(0, None), (None, 2), (0, 1), (2, 0)} <= links
    torch.testing.assert_close(replicate(base, FOUR)[2][0].weight.cpu(), base[0].weight.cpu())


class Operators(TorchDispatchMode):
    def __init__(self):
        self.seen = []

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        self.seen.append(str(operator))
        return operator(*args, **kwargs or {})


@pytest.mark.usefixtures("_fresh_links")
def test_b7_a_link_that_a_forward_tests_shows_nothing_to_its_dispatch_modes():
    wrapper, x = DataParallel(mlp().to("sim:0"), FOUR, policy=Policy(route="chain")), torch.randn(16, 5)
    with Operators() as operators:
        wrapper(x).sum().backward()
    assert transfer._peers_are_sound.cache_info().currsize > LINKS
    assert "aten.arange.default" not in operators.seen


def step_by_step(base, policy, x):
    chunks, kwarg_chunks = scatter_kwargs((x,), {}, FOUR, policy=policy)
    assert [chunk.tolist() for (chunk,) in chunks] == [chunk.tolist() for chunk in scatter(x, FOUR, policy=policy)]
    replicas = replicate(base, FOUR, policy=policy)
    return gather(parallel_apply(replicas, chunks, kwarg_chunks, FOUR, policy), FOUR[0], policy=policy)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda base, policy: DataParallel(base, FOUR, policy=policy),
        lambda base, policy: partial(data_parallel, base, device_ids=FOUR, policy=policy),
        lambda base, policy: partial(step_by_step, base, policy),
    ],
    ids=["wrapper", "function", "step by step"],
)
def test_b7_the_user_may_choose_to_go_through_the_host(wrap):
    base = nn.Sequential(normed(), nn.Linear(3, 2)).to("sim:0")
    forward = wrap(base, Policy(host_staged=True, dispatch="sequence"))
    x = torch.randn(16, 5).to("sim:0")
    with recording() as recorded:
        forward(x).sum().backward()
    links = {(e.source, e.destination) for e in recorded.events if isinstance(e, Copy)}
    assert links == {(None, i) for i in range(4)} | {(i, None) for i in range(4)}


@pytest.mark.parametrize(("dim", "shape"), [(-1, (2, 6)), (-2, (4, 3))])
def test_gather_counts_dimensions_from_the_end_too(dim, shape):
    assert gather([torch.ones(2, 3).to(device) for device in FOUR[:2]], FOUR[0], dim).shape == shape


@pytest.mark.parametrize(
    ("dim", "second", "error"), [(2, (2, 3), IndexError), (-3, (2, 3), IndexError), (1, (2,), RuntimeError)]
)
def test_gather_refuses_what_does_not_fit(dim, second, error):
    with pytest.raises(error, match=r"Dimension out of range|invalid size"):
        gather([torch.ones(2, 3).to(FOUR[0]), torch.ones(second).to(FOUR[1])], FOUR[0], dim)


def test_what_stays_on_a_device_does_not_go_through_the_host():
    wrapper = DataParallel(normed().to("sim:0"), ["sim:0"] * 2, policy=Policy(host_staged=True))
    x = torch.randn(4, 5).to("sim:0")
    with recording() as recorded:
        wrapper(x).sum().backward()
    assert not [event for event in recorded.events if isinstance(event, Copy)]


def test_sparse_tensors_go_through_the_host_too_if_the_user_chooses_it():
    base = Call(lambda self, x: self.inner(x), inner=nn.Embedding(5, 3, sparse=True)).to("sim:0")
    base.register_buffer("table", torch.eye(3).to_sparse().to("sim:0"))
    wrapper = DataParallel(base, FOUR[:2], policy=Policy(host_staged=True))
    with recording() as recorded:
        wrapper(torch.randint(5, (4,))).sum().backward()
    links = {(event.source, event.destination) for event in recorded.events if isinstance(event, Copy)}
    assert links == {(0, None), (None, 1), (1, None), (None, 0)}


@pytest.mark.parametrize("wrap", [nn.DataParallel, DataParallel])
def test_buffers_that_overlap_are_apart_in_the_other_replicas_as_in_stock(wrap):
    def forward(self, x):
        self.whole.add_(1)
        return x + self.part.sum()

    base = Call(forward)
    base.register_buffer("whole", torch.zeros(8, device="sim:0"))
    base.register_buffer("part", base.whole[2:5])
    x = torch.zeros(3, device="sim:0")
    wrapper = wrap(base, [0, 1, 2])
    assert [wrapper(x).tolist() for _ in range(2)] == [[3, 0, 0], [6, 3, 3]]
    assert base(x).tolist() == [9, 9, 9]
