"""A commit that raises in a use that no counted step has: tier 0 says which use it is."""

import shutil

import pytest

from benchmarks.instruments.gate_plants import ROOT, Code
from dpbench.engine.messages import CountJob
from dpbench.gate.count_sides import changes
from dpbench.gate.settings import load_settings
from dpbench.jobs.count import run_jobs
from tests.sampling import sampled


def when(condition):
    return Code(lines=[f"if {condition}:", "    raise RuntimeError('planted')"])


def before(old, indent=8):
    raised = f"{' ' * indent}raise RuntimeError('planted')\n"
    return Code(edits=[{"file": "module.py", "old": old, "new": raised + old}])


def method(name):
    old, new = "    def mark_dirty(", f"    def {name}(self, *_, **__):\n        raise RuntimeError('planted')\n\n"
    return Code(edits=[{"file": "module.py", "old": old, "new": new + old}])


IMAGE = "inputs and torch.is_tensor(inputs[0]) and inputs[0].dim() == 4"
ROWS = "inputs and torch.is_tensor(inputs[0])"
RAISING = {
    "half precision": (when("torch.bfloat16 in {each.dtype for each in module.parameters()}"), {"half"}),
    "another mode": (when("not self.training"), {"toggled"}),
    "keyword inputs": (when("kwargs"), {"keywords", "many_keywords"}),
    "nested inputs": (when("any(isinstance(each, dict) for each in inputs)"), {"nested"}),
    "three inputs": (when("len(inputs) > 2"), {"many_inputs"}),
    "a dict as the output": (
        Code(
            edits=[
                {
                    "file": "module.py",
                    "old": "        device = resolve_target(output_device)\n",
                    "new": "        if isinstance(outputs[0], dict):\n            raise RuntimeError('planted')\n"
                    "        device = resolve_target(output_device)\n",
                }
            ]
        ),
        {"many_outputs"},
    ),
    "fewer items than lanes": (
        when(f"{ROWS} and len(inputs[0]) < len(self.device_ids)"),
        {"uneven", "sizes", "accumulated"},
    ),
    "hooks": (when("any(each._forward_hooks for each in module.modules())"), {"hooks"}),
    "frozen parameters": (when("not all(each.requires_grad for each in module.parameters())"), {"frozen"}),
    "tied parameters": (
        when("len(list(module.named_parameters(remove_duplicate=False))) > len(list(module.parameters()))"),
        {"tied"},
    ),
    "channels_last": (when(f"{IMAGE} and inputs[0].is_contiguous(memory_format=torch.channels_last)"), {"images"}),
    "autocast": (when("torch.is_autocast_enabled('cpu')"), {"autocast"}),
    "shares": (when("self.policy.shares"), {"shares"}),
    "more than four devices": (when("len(self.device_ids) > 4"), {"hooks", "sizes"}),
    "the functional form": (before("    if not isinstance(inputs, tuple):\n", 4), {"functional"}),
    "zero_grad": (method("zero_grad"), {"zero_grad"}),
    "state_dict": (method("state_dict"), {"state_dict"}),
    "copies": (before("        return {name: value for name, value in self.__dict__"), {"once_copied", "once_pickled"}),
    "an accumulation of uneven steps": (
        when(f"self._accumulation.entered and {ROWS} and len(inputs[0]) < 6"),
        {"accumulated"},
    ),
}
NAMES = sampled(RAISING, 6)


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """The record of the commit as it is, then that of each that raises, all counted by one child."""
    jobs, (_, on_cpu, _) = [], load_settings(ROOT / "benchmarks/gate.toml").uses
    for code in (Code(), *(RAISING[name][0] for name in NAMES)):
        folder = tmp_path_factory.mktemp("raising")
        shutil.copytree(ROOT / "dpbench/parallel", folder / "dpbench/parallel")
        code.write(folder)
        jobs.append(CountJob(case=on_cpu.case(ROOT), folder=str(folder)))
    return dict(zip(["", *NAMES], run_jobs(jobs), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_a_use_that_raises_is_worse_and_one_that_works_again_is_not(records, name):
    _, uses = RAISING[name]
    assert {name: record.reason for name, record in records.items() if record.counts is None} == {}
    is_worse = {change.counter: change.is_worse for change in changes("a case", records[""], records[name])}
    assert {f"uses.{use}.absent" for use in uses} <= {counter for counter in is_worse if is_worse[counter]}
    assert not {counter for counter in is_worse if counter.startswith(tuple(f"uses.{use}.h" for use in uses))}
    again = changes("a case", records[name], records[""])
    assert {change.counter for change in again if change.is_worse and change.counter.endswith("absent")} == set()
