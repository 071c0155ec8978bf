import pytest

from dpbench.jobs import worker as lost
from dpbench.jobs.worker import lost_among, why_lost
from dpbench.measure.gpu.nvml import LostGpuError
from tests.fakes import FakeGpu, FakeNvml, ScriptedClock

UUIDS = {"cuda:0": "aa", "cuda:1": "bb", "cuda:2": "cc"}


@pytest.fixture
def clock(monkeypatch):
    """Three GPUs of the case: one is a MIG slice, and one is lost after 5 s. A GPU of another case is lost at once."""
    clock = ScriptedClock()
    gpus = [FakeGpu("others", lost_after_s=0), FakeGpu("bb", lost_after_s=5), FakeGpu("aa", slice_of_mig=True)]
    FakeNvml([*gpus, FakeGpu("cc")], clock).install(monkeypatch)
    monkeypatch.setattr(lost, "uuids_of", lambda devices: {str(device): UUIDS[str(device)] for device in devices})
    return clock


def test_only_the_gpus_of_the_case_are_checked(clock):
    assert lost_among(UUIDS) is None
    clock.advance(5)
    assert lost_among(UUIDS).startswith("cuda:1: ")
    assert lost_among({"cuda:2": "cc"}) is None


def test_nvml_finds_the_lost_gpu_behind_an_unspecific_error(clock):
    error = RuntimeError("CUDA error: unspecified launch failure\nCUDA kernel errors might be reported later")
    assert why_lost(error, ("cuda:1", "cuda:2")) is None
    clock.advance(5)
    reason = why_lost(error, ("cuda:1", "cuda:2"))
    assert reason == "cuda:1: nvmlDeviceGetHandleByUUID: GPU is lost; CUDA error: unspecified launch failure"
    assert why_lost(error, ("cuda:2",)) is None


@pytest.mark.parametrize(
    "error",
    [
        LostGpuError("nvmlGpmSampleGet: GPU is lost"),
        RuntimeError("CUDA error: uncorrectable ECC error encountered"),
        RuntimeError("NCCL error: unhandled cuda error 'no CUDA-capable device is detected'"),
    ],
)
def test_an_error_that_names_the_lost_gpu_is_the_reason(error):
    assert why_lost(error, ("cuda:0",)) == str(error)


def test_other_errors_give_no_reason():
    assert why_lost(RuntimeError("CUDA error: device-side assert triggered"), ("cpu",)) is None
    assert why_lost(RuntimeError(), ("cpu",)) is None
