"""What a training step takes of the GPUs: memory, time in which they idle, energy."""

from dpbench.results import readings

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
        """What the allocator of the fullest device had given out at most."""
        peaks = _case.measure(self.case).metrics.peak_device_bytes
        return max(_values(peaks.values()))


class _OnNvml(_OnGpus):
    def setup(self, machine, *point):
        if not machine.nvml_gpus:
            raise NotImplementedError(f"no NVML: {machine.nvml_error}")
        super().setup(machine, *point)


class Utilisation(_OnNvml):
    unit = "seconds"

    def track_gpu_idle_time(self, *_):
        """Of a step, the part in which the SMs did nothing; where the GPU has no such counter, in which no kernel ran.

        Idle time in place of utilisation, as asv takes lower for better; mean over the GPUs.
        """
        record = _case.measure(self.case)
        gpus = _telemetry(record)
        counted = all(gpu.sm_busy_percent.value is not None for gpu in gpus)
        busy = _values([gpu.sm_busy_percent if counted else gpu.kernel_running_percent for gpu in gpus])
        step_s = sorted(record.samples_s)[len(record.samples_s) // 2]
        return step_s * (1 - sum(busy) / len(busy) / 100)


class Energy(_OnNvml):
    unit = "joules"

    def track_energy_per_step(self, *_):
        """Of all GPUs together."""
        return sum(_values([gpu.energy_per_step_j for gpu in _telemetry(_case.measure(self.case))]))


def _telemetry(record):
    found = list(record.metrics.telemetry.values())
    if reasons := [each for each in found if not isinstance(each, readings.DeviceTelemetry)]:
        _case.skip(reasons[0])
    return found


def _values(readings):
    """All of them, or a skip with the reason of the first that has none."""
    found = list(readings)
    if reasons := [each.reason for each in found if each.value is None]:
        _case.skip(reasons[0])
    return [each.value for each in found]
