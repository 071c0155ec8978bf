"""Memory, step time of a host that runs ahead, idle time and energy of the GPUs for a training step."""

from statistics import median

from dpbench.asv import grid
from dpbench.records import readings

from . import _case, _grid


class _OnGpus(_grid._OverGrid):
    params = (["torch_dp", "tuned", "ddp"], _grid.WORKLOADS, _grid.BATCHES[:1], _grid.LANES)

    def setup(self, machine, *point):
        if not machine.accelerators:
            raise NotImplementedError("this machine has no accelerator")
        super().setup(machine, *point)


class DeviceMemory(_OnGpus):
    unit = "bytes"

    def track_peak_device_memory(self, *_):
        """The peak bytes that torch's allocator gave out on the fullest device."""
        peaks = _case.measure(self.case).metrics.peak_device_bytes
        return max(_values(peaks.values()))


class RunAhead(_OnGpus):
    """Samples of 20 steps without a wait between them, so that the host may run ahead of the devices."""

    unit = "seconds"

    def setup(self, machine, *point):
        super().setup(machine, *point)
        self.case = self.case.model_copy(update={"steps_per_sample": 20})

    def track_step_time(self, *_):
        return {"samples": list(grid.spaced(_case.measure(self.case).step_times_s)), "number": 1}

    track_step_time.rounds = 2


class _OnNvml(_OnGpus):
    def setup(self, machine, *point):
        if not machine.nvml_gpus:
            raise NotImplementedError(f"no NVML: {machine.nvml_error}")
        super().setup(machine, *point)


class Utilisation(_OnNvml):
    unit = "seconds"

    def track_gpu_idle_time(self, *_):
        """Seconds of a step in which the SMs were idle, as the mean over the GPUs.

        If a GPU lacks that counter, these are the seconds in which no kernel ran. asv takes lower as better, so this is
        no utilisation.
        """
        record = _case.measure(self.case)
        gpus = _telemetry(record)
        counted = all(gpu.sm_busy_percent.value is not None for gpu in gpus)
        busy = _values([gpu.sm_busy_percent if counted else gpu.kernel_running_percent for gpu in gpus])
        step_s = median(record.step_times_s)
        return step_s * (1 - sum(busy) / len(busy) / 100)


class Energy(_OnNvml):
    unit = "joules"

    def track_energy_per_step(self, *_):
        """Of all GPUs together."""
        return sum(_values([gpu.energy_per_step_j for gpu in _telemetry(_case.measure(self.case))]))


def _telemetry(record):
    devices = list(record.metrics.telemetry.values())
    if reasons := [device for device in devices if not isinstance(device, readings.DeviceTelemetry)]:
        _case.skip(reasons[0])
    return devices


def _values(readings):
    """If a reading has no value, skip with its reason."""
    given = list(readings)
    if reasons := [reading.reason for reading in given if reading.value is None]:
        _case.skip(reasons[0])
    return [reading.value for reading in given]
