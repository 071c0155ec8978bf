import sys
import warnings
from types import SimpleNamespace

import pynvml
import pytest
import torch

from dpbench.cases.machine_info import MachineInfo
from dpbench.engine.messages import ProbeRequest
from dpbench.jobs import probe_child as probe


@pytest.fixture
def nvml(monkeypatch):
    """A fake driver with two GPUs, called through pynvml."""
    driver = SimpleNamespace(lost=None)

    def name(handle):
        if handle == driver.lost:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return f"Fake H{handle}00"

    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 2)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: index)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", name)
    return driver


@pytest.fixture
def no_nvml(monkeypatch):
    def init():
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", init)


def accelerators(monkeypatch, kind, available, properties=None):
    fake = SimpleNamespace(
        is_available=available, device_count=lambda: 2, current_accelerator=lambda: torch.device(kind)
    )
    monkeypatch.setattr(torch, "accelerator", fake)
    monkeypatch.setattr(torch, "get_device_module", lambda kind: SimpleNamespace(get_device_properties=properties))


def test_the_names_of_the_drivers_gpus(nvml):
    assert probe.nvml_names() == (("Fake H000", "Fake H100"), None)


def test_a_lost_gpu_gets_a_placeholder_and_the_others_keep_their_names(nvml):
    nvml.lost = 0
    assert probe.nvml_names() == (("GPU 0", "Fake H100"), "GPU 0: name: GPU is lost")


@pytest.mark.parametrize(
    ("name", "error", "wanted"),
    [
        ("nvmlDeviceGetName", UnicodeDecodeError("utf-8", b"\xf8", 0, 1, "invalid start byte"), ("GPU 0", "GPU 1")),
        ("nvmlDeviceGetHandleByIndex", pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION), ("GPU 0", "GPU 1")),
        ("nvmlDeviceGetCount", pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN), ()),
        ("nvmlDeviceGetCount", pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND), ()),
        ("nvmlInit", OSError("libnvidia-ml.so.1: file too short"), ()),
        ("nvmlInit", pynvml.NVMLError(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH), ()),
    ],
)
def test_an_answer_of_nvml_that_fails_is_one_problem(nvml, monkeypatch, name, error, wanted):
    """gpustat#170, nvitop#127, pynvml#53, ray#45492: WSL's names are no UTF-8; other drivers fail at the count."""

    def fail(*_):
        raise error

    fail.__name__ = name
    monkeypatch.setattr(pynvml, name, fail)
    names, problem = probe.nvml_names()
    assert names == wanted
    assert name in problem
    assert type(error).__name__ in problem or str(error) in problem


def test_a_drivers_version_that_is_no_text_is_none(nvml, monkeypatch):
    def fail():
        raise UnicodeDecodeError("utf-8", b"\xf8", 0, 1, "invalid start byte")

    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", fail)
    assert probe._driver_version() is None


def test_lanes_on_the_cpu_do_not_care_for_gpus_that_torch_cannot_use():
    machine = MachineInfo(python="3.11", torch="2.13", cpu_model="a CPU", cores=2, memory_bytes=1, nvml_gpus=("H100",))
    assert machine.unusable_gpus([["cpu", "cpu"], ["cpu"]]) == ()
    assert machine.unusable_gpus(None) == machine.unusable_gpus([["cpu"], ["cuda:0"]]) == ("H100",)


def test_without_a_driver_there_is_an_error(no_nvml):
    assert probe.nvml_names() == ((), "init: NVML Shared Library Not Found")


@pytest.mark.parametrize("kind", ["cuda", "xpu"])
def test_devices_of_any_kind_are_found(monkeypatch, kind):
    accelerators(monkeypatch, kind, lambda: True, lambda i: SimpleNamespace(name=f"Fake {i}", total_memory=80 << 30))
    devices, error = probe.read_accelerators()
    assert error is None
    assert [(device.device, device.name, device.memory_bytes) for device in devices] == [
        (f"{kind}:0", "Fake 0", 80 << 30),
        (f"{kind}:1", "Fake 1", 80 << 30),
    ]


def too_old():
    warnings.warn("CUDA initialization: The NVIDIA driver on your system is too old\nmore", stacklevel=1)
    return False


def broken():
    raise RuntimeError("CUDA unknown error\nmore")


@pytest.mark.parametrize(
    ("available", "reason"),
    [
        (too_old, "CUDA initialization: The NVIDIA driver on your system is too old"),
        (broken, "CUDA unknown error"),
        (lambda: False, None),
    ],
)
def test_the_reason_why_torch_can_use_no_device(monkeypatch, available, reason):
    accelerators(monkeypatch, "cuda", available)
    assert probe.read_accelerators() == ((), reason)


@pytest.mark.parametrize(
    ("cuda", "hidden", "reason"),
    [
        (None, None, "is built without CUDA"),
        ("13.0", "", "CUDA_VISIBLE_DEVICES='' hides them"),
        ("13.0", None, "for CUDA 13.0, finds no device it can use"),
    ],
)
def test_gpus_that_torch_cannot_use_are_listed_with_the_reason(monkeypatch, nvml, cuda, hidden, reason):
    accelerators(monkeypatch, "cuda", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    machine = probe.respond(ProbeRequest())
    assert machine.unusable_gpus() == ("Fake H000", "Fake H100")
    assert reason in machine.torch_error


def test_torchs_own_reason_goes_before_a_guess(monkeypatch, nvml):
    accelerators(monkeypatch, "cuda", too_old)
    assert "too old" in probe.respond(ProbeRequest()).torch_error


def test_a_machine_without_gpus_has_no_error(monkeypatch, no_nvml):
    accelerators(monkeypatch, "cuda", lambda: False)
    machine = probe.respond(ProbeRequest())
    assert (machine.torch, machine.torch_error, machine.unusable_gpus(), machine.devices) == (
        torch.__version__,
        None,
        (),
        ("cpu",),
    )


def test_an_import_error_of_torch_is_reported(monkeypatch, nvml):
    monkeypatch.setitem(sys.modules, "torch", None)
    machine = probe.respond(ProbeRequest(workloads=("mine:factory",)))
    assert machine.torch is None
    assert machine.torch_error.startswith("torch does not import: ")
    assert machine.workload_errors == {"mine:factory": machine.torch_error}
