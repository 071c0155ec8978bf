"""Regressions planted in the wrapper, each named by tier 0 in the cases that only the gate counts."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from dpbench.engine.launch import launch
from dpbench.gate.count_sides import Records, compare_records, count_folders
from dpbench.gate.judgement import CounterChange
from dpbench.gate.settings import read_settings
from dpbench.gate.tier0_cases import tier0_of, wrapper_jobs
from tests.simulated import needs_simulator

WRAPPER = Path("dpbench/parallel")
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Edit:
    """Replaces the first `old` by `new` in a file of the wrapper."""

    file: str
    old: str
    new: str


def planted(folder: Path, *edits: Edit) -> Path:
    """Write a copy of the wrapper with these edits into a new folder, and return the folder."""
    shutil.copytree(ROOT / WRAPPER, folder / WRAPPER, ignore=shutil.ignore_patterns("__pycache__"))
    for edit in edits:
        path = folder / WRAPPER / edit.file
        text = path.read_text()
        assert edit.old in text, f"{edit.file} has no {edit.old!r}"
        path.write_text(text.replace(edit.old, edit.new, 1))
    return folder


SETTINGS = read_settings(ROOT, None, ())
TIER0 = tier0_of(SETTINGS, wrapper_jobs())


def counted(cases: Sequence[str], folder: Path) -> Records:
    """Count these cases of a commit as tier 0 does."""
    return count_folders({name: TIER0.jobs[name] for name in cases}, [folder], launch)[0]


def changed(base: Records, cases: Sequence[str], folder: Path) -> list[CounterChange]:
    """The counters of these cases in which the folder's commit differs."""
    return compare_records({name: base[name] for name in cases}, counted(cases, folder), TIER0)


PLAIN, KEPT = "counts mlp/tiny sim:0+sim:1+sim:2+sim:3", "counts mlp/tiny cpu*4"
BUCKETS = f"{PLAIN} [bucket_bytes=2048,first_bucket_bytes=1024]"
INFERENCE = f"{PLAIN.replace('mlp', 'transformer')} infer [dispatch=auto]"
GROWTH = tuple(name for name in TIER0.jobs if name.startswith("counts many/"))
CHOICES = SETTINGS.uses[0].name

APPLIED = "                    self._dispatcher.has_run = True\n"
EACH_DEVICE = "            for device in self._pool().devices:\n"
CHECKED = "                check_not_capturing(self.src_device_obj)\n"
EARLY = "connect_links(trained, tensors, mailbox, self._policy.overlap_reduce)"
RAISED = "        token.grad_fn._set_sequence_nr(FIRST)\n"


def in_forward(old, *lines):
    """Lines added behind a line of `DataParallel.forward`."""
    return Edit("module.py", old, old + "".join(f"    {line}\n" for line in lines))


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
        compared = changed(base, cases, planted(tmp_path / "head", *edits))
        return {change.counter: (change.base, change.head) for change in compared if change.is_worse}

    return call


@needs_simulator
@pytest.mark.parametrize("wait", FULL_WAITS)
def test_a_full_wait_for_all_lanes_in_forward_is_named(named, wait):
    """In training and in inference."""
    plant = in_forward(APPLIED, EACH_DEVICE.rstrip(), FULL_WAITS[wait])
    assert named((PLAIN, INFERENCE), plant)["forward.host_calls.host_wait"] == (0, 4)


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
    worse = named((BUCKETS,), Edit("gradient_nodes.py", RAISED, "        pass\n"))
    assert worse["dependencies.operators_before_issue"][0] == 0 < worse["dependencies.operators_before_issue"][1]


@needs_simulator
def test_sums_that_are_issued_in_the_opposite_order_are_named(named):
    """The number of a node falls with each bucket, so the bucket that is ready last is summed first."""
    falling = (
        "        global _falling\n        _falling = (_falling - 1) % 16 + 1\n"
        "        token.grad_fn._set_sequence_nr(_falling)\n"
    )
    plant = (
        Edit("gradient_nodes.py", RAISED, falling),
        Edit("gradient_nodes.py", "@dataclass", "_falling = 16\n\n\n@dataclass"),
    )
    before, after = named((BUCKETS,), *plant)["dependencies.issue_swaps"]
    assert before == 0 < after


@needs_simulator
def test_both_overlaps_off_are_named(named):
    worse = named((BUCKETS,), default("overlap_broadcast"), default("overlap_reduce"))
    assert {"dependencies.startable_at_half_bytes", "dependencies.before_first_layer_bytes"} <= worse.keys()


@needs_simulator
def test_a_loop_over_all_pairs_of_tensors_is_named_by_its_growth(named):
    lines = (
        "            tensors = self._pool().sets.tree_of(module).tensors",
        "            [a for a in tensors for b in tensors if a is b]",
    )
    worse = named(GROWTH, in_forward(CHECKED, *lines))
    assert list(worse) == ["forward.python_lines.growth"]


def test_memory_that_each_step_keeps_is_named(named):
    """A list that grows with each step, and a tensor that does."""
    lines = ("            self.__dict__.setdefault('kept', []).append((object(), torch.zeros(64)))",)
    worse = named((KEPT,), in_forward(CHECKED, *lines))
    assert worse["kept.python_blocks"][0] == 0 < worse["kept.python_blocks"][1]
    assert worse["kept.malloc_bytes"][0] == 0
    assert worse["kept.malloc_bytes"][1] >= 256


COUNTER = "uses.choices.slower"
FASTEST = "min(least_s"
GAIN = "LEAST_GAIN = 0.05"
DEFAULT = "    dispatch: Dispatch = Dispatch.AUTO"


def choices_of(folder, *edits):
    return counted([CHOICES], planted(folder, *edits))


@pytest.fixture(scope="module")
def chosen_base(tmp_path_factory):
    return choices_of(tmp_path_factory.mktemp("chosen_base"))


@pytest.mark.parametrize(
    "plant",
    [
        Edit("dispatch.py", FASTEST, FASTEST.replace("min", "max")),
        Edit("dispatch.py", GAIN, GAIN.replace("0.05", "0.0")),
        Edit("policy.py", DEFAULT, DEFAULT.replace("AUTO", "SEQUENCE")),
        Edit("policy.py", DEFAULT, DEFAULT.replace("AUTO", "THREADS")),
    ],
    ids=["the slowest", "for any gain", "always in sequence", "always on threads"],
)
def test_a_wrong_choice_is_worse(chosen_base, tmp_path, plant):
    changes = {
        change.counter: change for change in compare_records(chosen_base, choices_of(tmp_path / "head", plant), TIER0)
    }
    assert (changes[COUNTER].base, changes[COUNTER].head, changes[COUNTER].is_worse) == (0, 1, True)
