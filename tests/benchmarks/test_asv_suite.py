"""What the asv suite skips and computes, without asv and without children."""

import re

import pytest
from asv_runner.benchmarks.mark import SkipNotImplemented

from benchmarks.asv_suite import _case, counters, gpu, host_overhead
from dpbench.cases.machine_info import Accelerator, MachineInfo
from dpbench.records.count_record import Counts, Phase, PhaseCounts, Traffic
from dpbench.records.readings import TELEMETRY, DeviceTelemetry, Reading
from tests.records.making import METRICS, case, ok, thin

NOTHING = Reading(reason="this GPU has no such counter")


def telemetry(**readings):
    fields = dict.fromkeys(TELEMETRY, NOTHING)
    return DeviceTelemetry(uuid="GPU-0", window_s=1.0, throttled_s={}, **{**fields, **readings})


@pytest.fixture
def measured(monkeypatch):
    """Return a function that gives every case these metrics, and steps of 10 ms."""

    def measured(**metrics):
        record = ok(case(), 0, (0.01, 0.01, 0.5)).model_copy(update={"metrics": METRICS.model_copy(update=metrics)})
        monkeypatch.setattr(_case, "measure", lambda _: record)

    return measured


def benchmark(kind):
    made = kind()
    made.case = case()
    return made


@pytest.mark.parametrize(
    "reason",
    [
        "crashed: ended with exit status 1\nModuleNotFoundError: No module named 'dpbench.parallel' in this commit",
        "ModuleNotFoundError: No module named 'dpbench.parallel.policy'",
        "ImportError: cannot import name 'Policy' from 'dpbench.parallel' (/x/__init__.py)",
        "TypeError: Policy.__init__() got an unexpected keyword argument 'dispatch'",
    ],
)
def test_a_commit_that_is_too_old_is_skipped(reason, capsys):
    with pytest.raises(SkipNotImplemented, match="this commit lacks what the benchmark needs"):
        _case.refuse(reason)
    assert capsys.readouterr().out.startswith("asv: skipped: this commit lacks")


@pytest.mark.parametrize(
    "reason",
    [
        "ModuleNotFoundError: No module named 'torch'",
        "ImportError: cannot import name 'x' from 'dpbench.measure'",
        "TypeError: measure() got an unexpected keyword argument 'budget'",
        "TypeError: unsupported operand type(s) for +: 'int' and 'str'",
        "wrong_result: gradients are 0.1 away",
    ],
)
def test_any_other_error_is_a_failure(reason):
    with pytest.raises(RuntimeError, match=re.escape(reason)) as raised:
        _case.refuse(reason)
    assert not isinstance(raised.value, NotImplementedError)


def test_host_overhead_is_the_fastest_of_ten_successive_steps():
    calm = [0.001 + i / 1e6 for i in range(20)]
    busy = [time_s if i % 7 == 3 else time_s + 0.004 for i, time_s in enumerate(calm)]
    assert host_overhead.fastest_of_blocks(calm) == [calm[0], calm[10]]
    assert host_overhead.fastest_of_blocks(busy) == [calm[3], calm[10]]


def test_counters_are_sums_and_memory_is_the_highest_peak():
    copies = {"sim:0->sim:1": Traffic(count=2, size_bytes=10), "sim:1->sim:0": Traffic(count=1, size_bytes=5)}
    phases = {
        Phase.FORWARD: PhaseCounts(operators=3, copies=copies, allocations=4, peak_bytes={"sim:0": 7, "sim:1": 9}),
        Phase.BACKWARD: PhaseCounts(operators=5, copies=copies, allocations=1, peak_bytes={"sim:0": 8, "sim:1": 1}),
    }
    assert counters.sums(Counts(phases=phases)) == {
        "operators": 8,
        "copies": 6,
        "copied_bytes": 30,
        "allocations": 5,
        "peak_bytes": 9,
        "python_calls": 0,
    }


def test_failed_counts_fail_and_impossible_counts_are_skipped():
    counts = {(1, "sim"): "skipped: the simulator was tested with torch 2.13", (2, "sim"): "crashed: why"}
    with pytest.raises(SkipNotImplemented):
        counters._one(counts, (1,), "copies")
    with pytest.raises(RuntimeError, match="crashed: why"):
        counters._one(counts, (2,), "copies")
    with pytest.raises(SkipNotImplemented, match="no CPU lanes"):
        counters._one(counts, (1,), "python_calls", kind="cpu")


def test_device_memory_is_that_of_the_fullest_device(measured):
    measured(peak_device_bytes={"cuda:0": Reading(value=5), "cuda:1": Reading(value=7)})
    assert benchmark(gpu.DeviceMemory).track_peak_device_memory() == 7
    measured(peak_device_bytes={"cuda:0": Reading(value=5), "cuda:1": NOTHING})
    with pytest.raises(SkipNotImplemented, match="no such counter"):
        benchmark(gpu.DeviceMemory).track_peak_device_memory()


def test_idle_time_uses_the_median_step_and_the_best_counter_that_all_gpus_have(measured):
    full = telemetry(sm_busy_percent=Reading(value=80), kernel_running_percent=Reading(value=100))
    bare = telemetry(kernel_running_percent=Reading(value=50))
    measured(telemetry={"cuda:0": full})
    assert benchmark(gpu.Utilisation).track_gpu_idle_time() == pytest.approx(0.01 * 0.2)
    measured(telemetry={"cuda:0": full, "cuda:1": bare})
    assert benchmark(gpu.Utilisation).track_gpu_idle_time() == pytest.approx(0.01 * 0.25)


def test_energy_is_of_all_gpus_together(measured):
    measured(telemetry={f"cuda:{i}": telemetry(energy_per_step_j=Reading(value=2.5)) for i in range(2)})
    assert benchmark(gpu.Energy).track_energy_per_step() == 5.0
    measured(telemetry={"cuda:0": telemetry()})
    with pytest.raises(SkipNotImplemented, match="no such counter"):
        benchmark(gpu.Energy).track_energy_per_step()
    measured(telemetry={"cuda:0": "NVML: no permission"})
    with pytest.raises(SkipNotImplemented, match="no permission"):
        benchmark(gpu.Energy).track_energy_per_step()


def test_a_host_that_runs_ahead_is_measured_in_seconds_of_a_step(monkeypatch):
    one = Accelerator(device="cuda:0", name="GPU", memory_bytes=2**30)
    machine = MachineInfo(
        python="3.11", torch="2.13.0", cpu_model="a CPU", cores=2, memory_bytes=2**30, accelerators=(one,)
    )
    monkeypatch.setattr(_case, "measure", lambda asked: thin(asked, 0, (2.0, 4.0)))
    made = gpu.RunAhead()
    made.setup(machine, "tuned", "mlp/small", 64, 2)
    assert made.track_step_time() == {"samples": [0.1, 0.2], "number": 1}


def test_without_gpus_or_nvml_setup_skips_their_benchmarks():
    machine = MachineInfo(
        python="3.11", torch="2.13.0", cpu_model="a CPU", cores=2, memory_bytes=2**30, nvml_error="no library"
    )
    with pytest.raises(NotImplementedError, match="this machine has no accelerator"):
        gpu.DeviceMemory().setup(machine, "tuned", "mlp/small", 64, 2)
    with pytest.raises(NotImplementedError, match="no NVML: no library"):
        gpu.Energy().setup(machine, "tuned", "mlp/small", 64, 2)
    one = Accelerator(device="cuda:0", name="GPU", memory_bytes=2**30)
    with_gpu = machine.model_copy(update={"accelerators": (one,), "nvml_gpus": ("GPU",)})
    made = gpu.Energy()
    made.setup(with_gpu, "tuned", "mlp/small", 64, 2)
    assert made.case.devices == ("cuda:0", "cuda:0")
