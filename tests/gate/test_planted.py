"""Regressions planted in the wrapper, each named by tier 0 in the cases that only the gate counts."""

import pytest

from dpbench.gate.tier0.counters import plain_cases
from dpbench.gate.tier0.gate_cases import CPU, SIMULATED, gate_cases
from dpbench.gate.tier0.growth import growth_cases
from dpbench.sweep.names import Mode
from dpbench.sweep.variants import VariantName
from tests.gate.planting import Edit, counted, planted, worse
from tests.simulated import needs_simulator

BUCKETS = next(case for case in gate_cases() if case.variant != VariantName.TUNED)
PLAIN = next(case for case in plain_cases() if case.workload == "mlp/tiny" and case.devices == SIMULATED)
KEPT = PLAIN.model_copy(update={"devices": CPU})
INFERENCE = next(case for case in gate_cases() if case.mode is Mode.INFER and case.devices == SIMULATED)
GROWTH = tuple(case for case in growth_cases() if case.workload.startswith("many/"))

APPLIED = "            outputs = self._replicas.lend(self._replicate_and_apply, module, chunks, kwarg_chunks)\n"
EACH_DEVICE = "            for device in self._pool().devices:\n"
CHECKED = "            check_not_capturing(self.src_device_obj)\n"
EARLY = "connect_links(wanted, tensors, mailbox, self._policy.overlap_reduce)"
RAISED = "        token.grad_fn._set_sequence_nr(FIRST)\n"


def in_forward(old, *lines):
    """Lines added behind a line of `DataParallel.forward`."""
    return Edit("module.py", old, old + "".join(f"{line}\n" for line in lines))


def default(switch):
    return Edit("policy.py", f"    {switch}: bool = True", f"    {switch}: bool = False")


FULL_WAITS = {
    "synchronize": "                torch.get_device_module(device).synchronize(device)",
    "event": "                torch.get_device_module(device).current_stream(device).record_event().synchronize()",
}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return counted((BUCKETS, PLAIN, INFERENCE, KEPT, *GROWTH), planted(tmp_path_factory.mktemp("base")))


@pytest.fixture
def named(base, tmp_path):
    """A function that returns the counters that are worse in these cases after these edits."""

    def call(cases, *edits):
        found = worse(base, cases, planted(tmp_path / "head", *edits))
        return {change.counter: (change.base, change.head) for change in found}

    return call


@needs_simulator
@pytest.mark.parametrize("wait", FULL_WAITS)
def test_a_full_wait_for_all_lanes_in_forward_is_named(named, wait):
    """In training and in inference."""
    plant = in_forward(APPLIED, EACH_DEVICE.rstrip(), FULL_WAITS[wait])
    assert named((PLAIN, INFERENCE), plant)["forward.host_calls.host_wait"] == (0, len(SIMULATED))


@needs_simulator
def test_an_operator_more_in_inference_alone_is_named(named):
    plant = in_forward(
        APPLIED, "            if not torch.is_grad_enabled():", "                outputs[0] = outputs[0] + 0"
    )
    assert "forward.operators" in named((PLAIN, INFERENCE), plant)


@needs_simulator
def test_a_reduction_that_is_no_longer_early_is_named_with_several_buckets_only(base, named):
    """With one bucket no gradient is free at half of the backward anyway."""
    late = Edit("broadcast.py", EARLY, EARLY.replace("self._policy.overlap_reduce", "False"))
    before, after = named((BUCKETS,), late)["dependencies.issued_at_half_bytes"]
    assert after == 0 < before
    assert base[PLAIN].counts.dependencies.issued_at_half_bytes == 0


@needs_simulator
def test_sums_that_are_issued_after_the_backward_are_named(named):
    found = named((BUCKETS,), Edit("broadcast.py", RAISED, "        pass\n"))
    assert found["dependencies.operators_before_issue"][0] == 0 < found["dependencies.operators_before_issue"][1]


@needs_simulator
def test_sums_that_are_issued_in_the_opposite_order_are_named(named):
    """The number of a node falls with each bucket, so the bucket that is ready last is summed first."""
    falling = (
        "        global _falling\n        _falling = (_falling - 1) % 16 + 1\n"
        "        token.grad_fn._set_sequence_nr(_falling)\n"
    )
    plant = Edit("broadcast.py", RAISED, falling), Edit("broadcast.py", "@dataclass", "_falling = 16\n\n\n@dataclass")
    before, after = named((BUCKETS,), *plant)["dependencies.issue_swaps"]
    assert before == 0 < after


@needs_simulator
def test_both_overlaps_off_are_named(named):
    found = named((BUCKETS,), default("overlap_broadcast"), default("overlap_reduce"))
    assert {"dependencies.startable_at_half_bytes", "dependencies.before_first_layer_bytes"} <= found.keys()


@needs_simulator
def test_a_loop_over_all_pairs_of_tensors_is_named_by_its_growth(named):
    lines = (
        "            tensors = self._pool().tree_of(module).tensors",
        "            [a for a in tensors for b in tensors if a is b]",
    )
    found = named(GROWTH, in_forward(CHECKED, *lines))
    assert list(found) == ["forward.python_lines.growth"]
    before, after = found["forward.python_lines.growth"]
    assert before < 2000 < after


@needs_simulator
def test_one_call_more_for_each_tensor_is_no_faster_growth(named):
    lines = ("            for tensor in self._pool().tree_of(module).tensors:", "                tensor.size().numel()")
    assert named(GROWTH, in_forward(CHECKED, *lines)) == {}


def test_memory_that_each_step_keeps_is_named(named):
    """A list that grows with each step, and a tensor that does."""
    lines = ("            self.__dict__.setdefault('kept', []).append((object(), torch.zeros(64)))",)
    found = named((KEPT,), in_forward(CHECKED, *lines))
    assert found["kept.python_blocks"][0] == 0 < found["kept.python_blocks"][1]
    assert found["kept.malloc_bytes"][0] == 0
    assert found["kept.malloc_bytes"][1] >= 256
