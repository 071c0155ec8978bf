"""The real telemetry with a fake driver behind pynvml's own marshalling."""

import pynvml
import pytest
import torch

from dpbench.measure.gpu.nvml import LostGpuError, find_gpu, reading, start
from dpbench.measure.gpu.telemetry import mean_of_samples, nvml_telemetry, telemetry_of
from dpbench.records.readings import TELEMETRY, DeviceTelemetry, Reading
from tests.fakes import FakeGpu, FakeNvml, Levels, ScriptedClock

NO_PERMISSION = pynvml.NVML_ERROR_NO_PERMISSION
POWER, THERMAL = pynvml.NVML_FI_DEV_PERF_POLICY_POWER, pynvml.NVML_FI_DEV_PERF_POLICY_THERMAL
BEGIN_S = 1000.0


@pytest.fixture
def clock():
    clock = ScriptedClock()
    clock.advance(BEGIN_S)
    return clock


@pytest.fixture
def measured(monkeypatch, clock):
    """Call with the window's seconds and its GPUs. Return the telemetry of 10 steps; torch reverses the GPUs' order."""

    def over(window_s: float, *gpus: FakeGpu):
        nvml = FakeNvml(gpus, clock).install(monkeypatch)
        start()
        telemetry = nvml_telemetry({f"cuda:{i}": gpu.uuid for i, gpu in enumerate(reversed(gpus))}, clock)
        telemetry.begin()
        in_window = len(nvml.calls)
        clock.advance(window_s)
        assert len(nvml.calls) == in_window
        telemetry_by_device = telemetry.end(10)
        assert nvml.samples_held == 0
        return telemetry_by_device

    return over


def of_one(telemetry: dict[str, DeviceTelemetry | str]) -> DeviceTelemetry:
    (one,) = telemetry.values()
    assert isinstance(one, DeviceTelemetry)
    return one


def test_devices_are_found_by_uuid_in_any_order(measured):
    busy, idle = FakeGpu("aa", busy_percent=Levels((0, 80))), FakeGpu("bb")
    telemetry = measured(1.0, busy, idle)
    assert [(device, of_device.uuid, of_device.sm_busy_percent.value) for device, of_device in telemetry.items()] == [
        ("cuda:0", "GPU-bb", 0),
        ("cuda:1", "GPU-aa", 80),
    ]


def test_only_the_window_is_read(measured):
    """What the GPU does before and after the window must not show."""
    spike = Levels((0, 100), (BEGIN_S, 20), (BEGIN_S + 1, 60), (BEGIN_S + 2, 100))
    gpu = FakeGpu("aa", busy_percent=spike, power_w=spike, pcie_bytes_per_s=spike, nvlink_bytes_per_s=spike)
    one = of_one(measured(2.0, gpu))
    assert one.window_s == 2
    assert one.sm_busy_percent == Reading(value=40, source="GPM")
    assert one.energy_per_step_j.value == pytest.approx(8)
    assert one.kernel_running_percent.value == pytest.approx((9 * 20 + 10 * 60) / 19)  # without the first sample
    assert one.power_w.value == one.kernel_running_percent.value
    assert one.kernel_running_percent.span_s == pytest.approx(1.9)
    assert one.sm_clock_mhz.value == 1980


def test_bytes_are_those_of_all_links_per_step(measured):
    one = of_one(
        measured(4.0, FakeGpu("aa", pcie_bytes_per_s=Levels((0, 1e6)), nvlink_bytes_per_s=Levels((0, 1024e6))))
    )
    assert one.pcie_sent_bytes_per_step == Reading(value=4e5, source="counter")
    assert one.pcie_received_bytes_per_step.value == 2e5
    assert one.nvlink_sent_bytes_per_step == Reading(value=4 * 1024e5, source="counter")


def test_a_gpu_without_gpm_has_the_drivers_utilisation_with_its_span(measured):
    one = of_one(measured(30.0, FakeGpu("aa", gpm=False, busy_percent=Levels((0, 50)))))
    assert one.sm_busy_percent.reason == one.dram_bandwidth_percent.reason
    assert one.sm_busy_percent.reason == "this GPU has no GPM; Hopper and newer GPUs have it"
    # Its buffer holds 100 samples, which cover the end of the window only.
    assert one.kernel_running_percent.value == 50
    assert one.kernel_running_percent.span_s == pytest.approx(9.9)


def test_samples_after_the_window_are_left_out(monkeypatch, clock):
    gpu = FakeGpu("aa", busy_percent=Levels((0, 30), (BEGIN_S + 1.05, 100)))
    FakeNvml([gpu], clock).install(monkeypatch)
    start()
    clock.advance(2.0)
    kind = pynvml.NVML_GPU_UTILIZATION_SAMPLES
    mean = mean_of_samples(find_gpu("cuda:0", "aa"), kind, BEGIN_S, BEGIN_S + 1)
    assert (mean.value, mean.span_s) == (30, pytest.approx(0.9))
    empty = reading(mean_of_samples, find_gpu("cuda:0", "aa"), kind, BEGIN_S, BEGIN_S + 0.05)
    assert empty.reason == "no sample of the driver falls into the window"


def test_the_first_sample_of_a_window_covers_time_before_it_and_is_dropped(measured, clock):
    clock.advance(0.05)
    one = of_one(measured(2.0, FakeGpu("aa", busy_percent=Levels((0, 100), (BEGIN_S + 0.05, 20)))))
    assert one.kernel_running_percent.value == pytest.approx(20)
    assert one.kernel_running_percent.span_s == pytest.approx(1.9)


def test_a_single_sample_in_the_window_is_a_reason(measured):
    one = of_one(measured(0.15, FakeGpu("aa", busy_percent=Levels((0, 70)))))
    assert (
        one.kernel_running_percent.reason
        == "one sample of the driver falls into the window, and it covers time before it"
    )


@pytest.mark.parametrize(("window_s", "is_known"), [(0.9, False), (1.0, True), (2.0, True)])
def test_energy_needs_a_window_of_a_second(measured, window_s, is_known):
    energy = of_one(measured(window_s, FakeGpu("aa", power_w=Levels((0, 500))))).energy_per_step_j
    assert (energy.value is not None) is is_known
    assert is_known or energy.reason == (
        "the window of 0.9 s is shorter than the 1 s that the energy counter needs; sample for 2 s"
    )


def test_throttling_is_seconds_by_cause(measured):
    hot = {POWER: Levels((0, 0), (BEGIN_S + 0.5, 1), (BEGIN_S + 0.75, 0)), THERMAL: Levels((0, 1), (BEGIN_S, 0))}
    one = of_one(measured(2.0, FakeGpu("aa", throttled=hot)))
    assert one.throttled_s["power"].value == pytest.approx(0.25)
    assert {cause: gpu_reading.value for cause, gpu_reading in one.throttled_s.items() if cause != "power"} == {
        **dict.fromkeys(("thermal", "sync_boost", "board_limit", "reliability"), 0.0)
    }
    assert one.is_throttled


def test_a_throttling_time_longer_than_the_window_is_refused(measured):
    one = of_one(measured(1.0, FakeGpu("aa", throttled={POWER: Levels((0, 1000))})))
    assert "more than is possible" in one.throttled_s["power"].reason


def test_a_counter_may_wrap_once(measured):
    gpu = FakeGpu("aa", pcie_bits=32, pcie_start=2**32 - 100, pcie_bytes_per_s=Levels((0, 0), (BEGIN_S, 20_000)))
    one = of_one(measured(0.02, gpu))
    assert one.pcie_sent_bytes_per_step == Reading(value=40, source="counter")


def test_gpm_replaces_a_counter_that_may_have_wrapped_often(measured):
    moving = Levels((0, 10e9))
    one = of_one(measured(1.0, FakeGpu("aa", pcie_bits=32, pcie_bytes_per_s=moving)))
    assert one.pcie_sent_bytes_per_step == Reading(value=1e9, source="GPM")
    without = of_one(measured(1.0, FakeGpu("aa", pcie_bits=32, pcie_bytes_per_s=moving, gpm=False)))
    assert without.pcie_sent_bytes_per_step.reason == (
        "a counter of 32 bits may have wrapped more than once in the window; "
        "this GPU has no GPM; Hopper and newer GPUs have it"
    )


def test_a_counter_that_went_back_is_refused(measured):
    one = of_one(measured(1.0, FakeGpu("aa", gpm=False, pcie_start=10**9, pcie_bytes_per_s=Levels((0, -1000.0)))))
    assert "more than is possible" in one.pcie_sent_bytes_per_step.reason


def test_a_short_window_has_reasons_and_no_zeros(measured):
    one = of_one(measured(0.05, FakeGpu("aa", busy_percent=Levels((0, 70)), power_w=Levels((0, 500)))))
    assert one.sm_busy_percent.reason == "the window of 0.05 s is shorter than the 0.1 s that GPM needs"
    assert "the window of 0.05 s is shorter than the 1 s" in one.energy_per_step_j.reason
    assert one.power_w.reason == "nvmlDeviceGetSamples: Not Found"
    assert one.sm_clock_mhz == Reading(value=1755, source="at the window's end", span_s=0)


@pytest.mark.parametrize(
    ("refused", "without"),
    [
        ("nvmlGpmSampleGet", {"sm_busy_percent", "dram_bandwidth_percent"}),
        (pynvml.NVML_GPM_METRIC_SM_UTIL, {"sm_busy_percent"}),
        ("nvmlDeviceGetSamples", {"kernel_running_percent", "memory_in_use_percent", "power_w"}),
        ("nvmlDeviceGetTotalEnergyConsumption", {"energy_per_step_j"}),
    ],
)
def test_a_missing_permission_is_a_reason_and_other_readings_stay(measured, refused, without):
    gpu = FakeGpu("aa", power_w=Levels((0, 500)), refuses={refused: NO_PERMISSION})
    one = of_one(measured(1.0, gpu))
    readings = {name: getattr(one, name) for name in TELEMETRY}
    assert {name for name, gpu_reading in readings.items() if gpu_reading.value is None} == without
    assert all("Insufficient Permissions" in readings[name].reason for name in without)


def test_refused_counters_leave_throttling_unknown_and_bytes_to_gpm(measured):
    one = of_one(measured(1.0, FakeGpu("aa", refuses={"nvmlDeviceGetFieldValues": NO_PERMISSION})))
    assert {gpu_reading.reason for gpu_reading in one.throttled_s.values()} == {
        "nvmlDeviceGetFieldValues: Insufficient Permissions"
    }
    assert one.is_throttled is None
    assert one.pcie_sent_bytes_per_step.source == "GPM"


@pytest.mark.parametrize("gpu", [FakeGpu("aa", mig=True), FakeGpu("aa", slice_of_mig=True)])
def test_a_slice_of_a_gpu_has_a_reason(measured, gpu):
    assert measured(1.0, gpu, FakeGpu("bb"))["cuda:1"] == (
        "MIG has split the GPU of aa; NVML's figures are those of the whole GPU"
    )


def test_a_gpu_that_nvml_does_not_know_has_a_reason(monkeypatch, clock):
    FakeNvml([FakeGpu("aa")], clock).install(monkeypatch)
    start()
    telemetry = nvml_telemetry({"cuda:0": "bb"}, clock)
    telemetry.begin()
    assert telemetry.end(1) == {"cuda:0": "NVML knows neither GPU-bb nor MIG-bb"}


@pytest.mark.parametrize("lost_after_s", [BEGIN_S, BEGIN_S + 0.5])
def test_a_lost_gpu_raises_at_both_edges(monkeypatch, clock, lost_after_s):
    FakeNvml([FakeGpu("aa"), FakeGpu("bb", lost_after_s=lost_after_s)], clock).install(monkeypatch)
    start()
    with pytest.raises(LostGpuError, match="GPU is lost"):  # noqa: PT012  # at the begin or at the end
        telemetry = nvml_telemetry({"cuda:0": "aa", "cuda:1": "bb"}, clock)
        telemetry.begin()
        clock.advance(1.0)
        telemetry.end(1)


def test_a_field_that_reports_a_lost_gpu_raises(measured):
    with pytest.raises(LostGpuError, match="GPU is lost"):
        measured(1.0, FakeGpu("aa", refuses={POWER: pynvml.NVML_ERROR_GPU_IS_LOST}))


def test_a_function_that_the_driver_lacks_is_named(monkeypatch, measured):
    monkeypatch.delattr(FakeNvml, "_nvmlDeviceGetTotalEnergyConsumption")
    one = of_one(measured(1.0, FakeGpu("aa")))
    assert one.energy_per_step_j.reason == "nvmlDeviceGetTotalEnergyConsumption: Function Not Found"


def test_other_devices_have_a_reason():
    telemetry = telemetry_of([torch.device("cpu"), torch.device("cpu")])
    telemetry.begin()
    assert telemetry.end(3) == {"cpu": "there is telemetry of NVIDIA's GPUs alone"}
