from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from dpbench.cases.case import Case
from dpbench.cases.names import Data
from dpbench.measure.session import RankPlacement, Session, micro_batches_of, open_session, share_of
from dpbench.records.count_record import Phase
from dpbench.variants.variant import Variant
from dpbench.workloads.resolve import resolve
from dpbench.workloads.workload import Batch

PLAIN = Variant(wrap=lambda base, devices: base, concurrent_lanes=False)
CPU = (torch.device("cpu"),)


def case(**changes):
    return Case(
        **{"variant": "single", "workload": "mlp/tiny", "batch": 8, "devices": ("cpu",), "threads": 1, **changes}
    )


def session(workload="mlp/tiny", data=Data.RANDOM, **changes):
    return Session(case(workload=workload, data=data, **changes), resolve(workload, data), PLAIN, RankPlacement(CPU))


def test_a_training_step_moves_the_parameters_by_its_gradients():
    made = session()
    before = [p.detach().clone() for p in made.base.parameters()]
    loss = made.step()
    assert loss.dim() == 0
    assert all(p.grad is not None for p in made.base.parameters())
    assert any(not torch.equal(old, new) for old, new in zip(before, made.base.parameters(), strict=True))


def test_host_memory_is_settled_before_the_model_is_made(monkeypatch):
    order = []
    monkeypatch.setattr("dpbench.measure.session.settle_host_memory", lambda: order.append("settled"))
    wrapped = Variant(wrap=lambda base, devices: order.append("made") or base, concurrent_lanes=False)
    Session(case(), resolve("mlp/tiny", Data.RANDOM), wrapped, RankPlacement(CPU))
    assert order == ["settled", "made"]


@pytest.mark.parametrize("ranks", [1, 2])
def test_batches_wait_in_memory_that_the_devices_copies_need(monkeypatch, ranks):
    prepared = []

    def prepare(tensor, device):
        assert device == CPU[0]
        prepared.append(tensor.clone())
        return prepared[-1]

    monkeypatch.setattr("dpbench.measure.session.ready_for_copies", prepare)
    made = Session(case(), resolve("mlp/tiny", Data.RANDOM), PLAIN, RankPlacement(CPU, 0, ranks))
    batches = [part.batch for _ in range(16) for part in next(made._batches)]
    waiting = {id(tensor) for batch in batches for tensor in (*batch.inputs, batch.target)}
    assert waiting == set(map(id, prepared))
    assert {len(tensor) for tensor in prepared} == {8 // ranks}


def test_gradients_do_not_accumulate_over_steps():
    made = session()
    seen = []
    for _ in range(2):
        made.step()
        seen.append(made.base[0].weight.grad.clone())
    fresh = session()
    fresh.step()
    (micro_batch,) = next(fresh._batches)
    fresh.base.zero_grad()
    fresh.loss(micro_batch.batch).backward()
    assert torch.allclose(seen[1], fresh.base[0].weight.grad)


def test_inference_builds_no_graph_and_changes_nothing():
    made = session(mode="infer")
    before = [p.detach().clone() for p in made.base.parameters()]
    assert not made.step().requires_grad
    assert all(torch.equal(old, new) for old, new in zip(before, made.base.parameters(), strict=True))


def test_equal_seeds_give_equal_losses():
    assert session(seed=3).step() == session(seed=3).step()
    assert session(seed=3).step() != session(seed=4).step()


def test_the_dtype_reaches_parameters_and_inputs():
    made = session(dtype="bfloat16")
    assert {p.dtype for p in made.base.parameters()} == {torch.bfloat16}
    assert made.step().isfinite()


@pytest.mark.parametrize(("items", "ranks"), [(8, 2), (9, 4), (4, 4), (7, 3)])
def test_shares_cover_the_batch_once_and_none_is_empty(items, ranks):
    batch = Batch((torch.arange(items), torch.arange(items) * 2), torch.arange(items) * 3)
    shares = [share_of(batch, RankPlacement(CPU, rank, ranks)) for rank in range(ranks)]
    assert torch.equal(torch.cat([s.inputs[1] for s in shares]), batch.inputs[1])
    assert torch.equal(torch.cat([s.target for s in shares]), batch.target)
    assert min(len(s.target) for s in shares) > 0


def test_the_loss_on_digits_goes_down():
    made = session("mlp/tiny", Data.DIGITS, batch=64)
    losses = [float(made.step()) for _ in range(60)]
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])


@pytest.mark.parametrize(("per_rank", "devices"), [(True, 1), (False, 2)])
def test_a_session_has_the_device_of_its_rank_or_all_devices(monkeypatch, per_rank, devices):
    variant = Variant(wrap=lambda base, devices: base, per_rank=per_rank)
    monkeypatch.setattr("dpbench.measure.session.variant_of", lambda _: variant)
    placement = open_session(case(variant="naive", devices=("cpu",) * 2), rank=1, ranks=2).placement
    assert placement == RankPlacement(CPU * devices, rank=1, ranks=2)


def test_a_workload_that_is_resolved_already_is_not_resolved_again(monkeypatch):
    workload = resolve("mlp/tiny", Data.RANDOM)
    monkeypatch.setattr("dpbench.measure.session.resolve", lambda *_: pytest.fail("resolved"))
    assert open_session(case(), workload=workload).workload is workload


@pytest.mark.parametrize("count", [1, 2, 3, 8, 9])
def test_micro_batches_have_all_items_and_their_shares(count):
    whole = Batch((torch.arange(16.0).reshape(8, 2),), torch.arange(8))
    parts = micro_batches_of(whole, count)
    assert len(parts) == min(count, 8)
    assert torch.equal(torch.cat([part.batch.inputs[0] for part in parts]), whole.inputs[0])
    assert torch.equal(torch.cat([part.batch.target for part in parts]), whole.target)
    assert [part.weight for part in parts] == [len(part.batch.target) / 8 for part in parts]


def test_a_step_of_several_micro_batches_has_the_gradients_and_the_loss_of_one():
    kept = []

    @contextmanager
    def without_reduction(scheme):
        kept.append("begin")
        yield
        kept.append("end")

    three = replace(PLAIN, micro_batches=3, without_reduction=without_reduction)
    workload, phases = resolve("mlp/tiny", Data.RANDOM), []
    made = Session(case(), workload, three, RankPlacement(CPU))
    whole = Session(case(), workload, PLAIN, RankPlacement(CPU))
    assert torch.allclose(made.step(phases.append), whole.step())
    for one, other in zip(made.base.parameters(), whole.base.parameters(), strict=True):
        assert torch.allclose(one.grad, other.grad, atol=1e-6)
        assert torch.allclose(one, other, atol=1e-6)
    assert kept == ["begin", "end"] * 2
    assert phases == [Phase.FORWARD, Phase.BACKWARD] * 3 + [Phase.OPTIMISER]


@pytest.mark.parametrize("low", ["bfloat16", "float16"])
def test_autocast_leaves_weights_in_float32_and_computes_in_its_type(low):
    made, types = session(dtype=f"autocast-{low}"), []
    made.base.register_forward_hook(lambda _module, _inputs, output: types.append(output.dtype))
    made.step()
    assert {p.dtype for p in made.base.parameters()} == {torch.float32}
    assert types == [getattr(torch, low)]


def test_steps_that_the_scaler_skips_are_counted():
    made = session(dtype="autocast-float16")
    made.scaler = made.new_scaler(2.0**40)
    made.step()
    made.scaler = made.new_scaler(1.0)
    made.step()
    assert (made.skipped_steps.skipped, made.skipped_steps.steps) == (1, 2)
    assert session(dtype="autocast-bfloat16").skipped_steps is None


def test_autocast_that_torch_has_not_is_one_line(monkeypatch):
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _: False)
    with pytest.raises(ValueError, match=r"'autocast-float16' cannot run: torch .* has no autocast to float16 for cpu"):
        session(dtype="autocast-float16")
