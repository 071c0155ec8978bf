import subprocess
import sys
from dataclasses import astuple

import pynvml
import pytest
import torch

from dpbench.cases.host import commit_of
from dpbench.measure.environment import read_environment
from dpbench.measure.gpu.facts import GpuFacts, read_gpu_facts
from tests.fakes import FakeGpu, FakeNvml, ScriptedClock

ONE, TWO, SWITCH = "00000000:01:00.0", "00000000:02:00.0", "00000000:0F:00.0"


@pytest.fixture
def facts(monkeypatch):
    """Reads the facts of GPUs that NVML has in the opposite order."""

    def read(*gpus: FakeGpu) -> GpuFacts:
        FakeNvml(gpus[::-1], ScriptedClock()).install(monkeypatch)
        return read_gpu_facts({f"cuda:{i}": gpu.uuid for i, gpu in enumerate(gpus)})

    return read


def test_gpus_are_in_torchs_order(facts):
    fields = facts(FakeGpu("aa", power_limit_w=350), FakeGpu("bb"), FakeGpu("cc", slice_of_mig=True))
    assert fields.driver == "580.65.06"
    assert fields.power_limits_w == (350, 700, None)
    assert fields.clocks == (*("SM to 1980 MHz, memory to 2619 MHz",) * 2, None)
    assert fields.links == ("0-1 PHB", "0-2 unknown", "1-2 unknown")


def test_nvlinks_between_two_gpus_are_counted_directly_or_up_to_the_switches(facts):
    direct = facts(FakeGpu("aa", pci=ONE, links=(TWO, "", TWO, SWITCH)), FakeGpu("bb", pci=TWO, links=(ONE,) * 2))
    assert direct.links == ("0-1 NV2",)
    switched = facts(FakeGpu("aa", pci=ONE, links=(SWITCH,) * 18), FakeGpu("bb", pci=TWO, links=(SWITCH,) * 18))
    assert switched.links == ("0-1 NV18",)
    apart = facts(FakeGpu("aa", pci=ONE, links=(SWITCH,) * 2), FakeGpu("bb", pci=TWO))
    assert apart.links == ("0-1 PHB",)


def test_a_refused_fact_is_none_and_the_others_stay(facts):
    refused = {"nvmlDeviceGetEnforcedPowerLimit": pynvml.NVML_ERROR_NO_PERMISSION}
    fields = facts(FakeGpu("aa", refuses=refused))
    assert fields.power_limits_w == (None,)
    assert fields.clocks != (None,)


def test_without_a_driver_all_facts_are_none(monkeypatch):
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: pynvml._nvmlCheckReturn(pynvml.NVML_ERROR_DRIVER_NOT_LOADED))
    assert astuple(read_gpu_facts({"cuda:0": "aa", "cuda:1": "bb"})) == (None, (None, None), (None, None), ())


def test_the_environment_of_this_process():
    environment = read_environment()
    assert environment.gil is (not hasattr(sys, "_is_gil_enabled") or sys._is_gil_enabled())
    assert (environment.python, environment.torch) == (sys.version.split()[0], torch.__version__)
    assert environment.cores >= 1
    assert environment.affinity


def test_a_checkout_is_dirty_if_a_tracked_file_was_changed(tmp_path):
    def git(*words):
        subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e", *words], cwd=tmp_path, check=True)

    assert commit_of(tmp_path) == (None, None)
    (tmp_path / "__init__.py").write_text("")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    commit, dirty = commit_of(tmp_path)
    assert (len(commit), dirty) == (40, False)
    (tmp_path / "__init__.py").write_text("changed")
    assert commit_of(tmp_path) == (commit, True)
