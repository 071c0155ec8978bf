from dataclasses import dataclass, field

import pynvml
import pytest

from dpbench.doctor.child.gpus import examine_gpus
from tests.fake_nvml import FakeGpu, FakeNvml, _RefusalError


@dataclass
class FakeBoard(FakeGpu):
    """A GPU with the values that only the examination reads."""

    persistence: int = 1
    reasons: int = pynvml.nvmlClocksEventReasonGpuIdle
    usual_power_w: float = 700.0
    ecc: int = 1
    ecc_errors: tuple[int, int] = (0, 0)
    rows_pending: int = 0
    rows_failed: int = 0
    computing: list[int] = field(default_factory=list)
    drawing: list[int] = field(default_factory=list)
    kernel_percent: int = 0


class FakeDriver(FakeNvml):
    def _nvmlDeviceGetPersistenceMode(self, gpu, mode):
        mode.value = gpu.persistence

    def _nvmlDeviceGetCurrentClocksEventReasons(self, gpu, reasons):
        reasons.value = gpu.reasons

    def _nvmlDeviceGetPowerManagementDefaultLimit(self, gpu, milliwatts):
        milliwatts.value = int(1000 * gpu.usual_power_w)

    def _nvmlDeviceGetEccMode(self, gpu, current, pending):
        current.value = pending.value = gpu.ecc

    def _nvmlDeviceGetMemoryErrorCounter(self, gpu, kind, since, where, count):
        assert since == pynvml.NVML_VOLATILE_ECC
        assert where == pynvml.NVML_MEMORY_LOCATION_DRAM
        count.value = gpu.ecc_errors[kind]

    def _nvmlDeviceGetRemappedRows(self, gpu, corrected, uncorrected, pending, failed):
        pending.value, failed.value = gpu.rows_pending, gpu.rows_failed

    def _nvmlDeviceGetComputeRunningProcesses_v3(self, gpu, count, processes):
        self._list(gpu.computing, count, processes)

    def _nvmlDeviceGetGraphicsRunningProcesses_v3(self, gpu, count, processes):
        self._list(gpu.drawing, count, processes)

    def _list(self, pids, count, processes):
        if processes is None and pids:
            count.value = len(pids)
            raise _RefusalError(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        count.value = len(pids)
        for place, pid in enumerate(pids):
            processes[place].pid = pid

    def _nvmlDeviceGetUtilizationRates(self, gpu, rates):
        rates.gpu = gpu.kernel_percent


@pytest.fixture
def examine(monkeypatch):
    """Return a function from GPUs to the findings on them, by name."""

    def call(*gpus):
        FakeDriver(gpus, lambda: 0.0).install(monkeypatch)
        return {finding.what: finding for finding in examine_gpus()}

    return call


def test_a_healthy_gpu_is_ok_in_every_check(examine):
    findings = examine(FakeBoard("a"))
    assert len(findings) == 9
    assert {finding.severity for finding in findings.values()} == {"ok"}, findings
    assert findings["GPU 0 clocks"].value == "SM at 1755 of 1980 MHz, memory at 2600 of 2619 MHz"


@pytest.mark.parametrize(
    ("changes", "what", "severity", "words"),
    [
        ({"persistence": 0}, "persistence", "note", "off"),
        (
            {"reasons": pynvml.nvmlClocksEventReasonHwThermalSlowdown | pynvml.nvmlClocksEventReasonSwPowerCap},
            "throttling",
            "unreliable",
            "too hot (hardware), power cap",
        ),
        ({"reasons": pynvml.nvmlClocksEventReasonSwPowerCap}, "throttling", "note", "power cap"),
        ({"power_limit_w": 300.0}, "power limit", "note", "300 W, 700 W by default"),
        ({"ecc": 0}, "ECC", "note", "off"),
        ({"ecc_errors": (3, 0)}, "ECC", "note", "3 corrected and 0 uncorrected"),
        ({"ecc_errors": (3, 1)}, "ECC", "unreliable", "3 corrected and 1 uncorrected"),
        ({"rows_pending": 1}, "rows to be replaced", "note", "due"),
        ({"rows_failed": 1}, "rows to be replaced", "unreliable", "could not be replaced"),
        ({"computing": [12, 34]}, "processes", "unreliable", "12, 34"),
        ({"drawing": [56]}, "processes", "note", "56"),
        ({"kernel_percent": 40}, "busy", "unreliable", "40 %"),
        ({"mig": True}, "MIG", "note", "on"),
    ],
)
def test_one_fault_of_one_gpu_is_one_finding(examine, changes, what, severity, words):
    findings = examine(FakeBoard("a"), FakeBoard("b", **changes))
    assert {name for name, finding in findings.items() if finding.severity != "ok"} == {f"GPU 1 {what}"}
    assert findings[f"GPU 1 {what}"].severity == severity
    assert words in findings[f"GPU 1 {what}"].value


def test_a_value_that_a_gpu_does_not_offer_is_unknown_with_nvmls_reason(examine):
    refused = {"nvmlDeviceGetEccMode": pynvml.NVML_ERROR_NOT_SUPPORTED}
    findings = examine(FakeBoard("a", refuses=refused))
    assert findings["GPU 0 ECC"].severity == "note"
    assert findings["GPU 0 ECC"].value == "unknown: nvmlDeviceGetEccMode: Not Supported"
    assert len(findings) == 9


def test_a_lost_gpu_is_unreliable_and_the_others_are_still_examined(examine):
    findings = examine(FakeBoard("a", lost_after_s=-1.0), FakeBoard("b"))
    assert findings["GPU 0"].severity == "unreliable"
    assert "lost" in findings["GPU 0"].value
    assert findings["GPU 1 ECC"].severity == "ok"


def test_without_a_driver_or_a_gpu(examine, monkeypatch):
    assert examine()["GPUs"].value == "none"
    monkeypatch.setattr(pynvml, "nvmlInit", refuse)
    (finding,) = examine_gpus()
    assert finding.value.startswith("unknown: ")


def refuse():
    raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)


refuse.__name__ = "nvmlInit"
