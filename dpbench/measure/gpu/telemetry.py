"""Telemetry of GPUs over the sampled window, in which nothing is polled.

    begin   counters, GPM sample | the window: steps and nothing else | GPM sample, counters, driver's samples   end

The driver takes samples into ring buffers by itself. GPM, the hardware counters of Hopper and newer GPUs, gives
averages between two samples.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import isfinite
from typing import Any

import torch

from dpbench.measure.gpu.bindings import pynvml
from dpbench.measure.gpu.facts import uuids_of
from dpbench.measure.gpu.nvml import Gpu, NotOfferedError, ask, check, counter, find_gpu, reading, start
from dpbench.measure.gpu.nvml_counters import THROTTLING, TRAFFIC, energy_j, read_counters, throttled_s, traffic_bytes
from dpbench.records.readings import DeviceTelemetry, Reading

LEAST_WINDOW_S = 0.1
"""The counters are refreshed this often (nvml.h, nvmlGpmSampleGet)."""

GpmSample = Any
"""A buffer of NVML, or the reason why GPM cannot be read."""


def take_sample(gpu: Gpu) -> GpmSample:
    """Raises LostGpuError."""
    try:
        if not ask(pynvml.nvmlGpmQueryDeviceSupport, gpu.handle).isSupportedDevice:
            return "this GPU has no GPM; Hopper and newer GPUs have it"
        sample = ask(pynvml.nvmlGpmSampleAlloc)
    except NotOfferedError as error:
        return str(error)
    try:
        return ask(pynvml.nvmlGpmSampleGet, gpu.handle, sample)
    except NotOfferedError as error:
        _free(sample)
        return str(error)


def averages(before: GpmSample, after: GpmSample, metrics: Sequence[int], window_s: float) -> dict[int, Reading]:
    """Averages by metric; frees the samples. Raises LostGpuError."""
    try:
        return _averages(before, after, metrics, window_s)
    except NotOfferedError as error:
        return dict.fromkeys(metrics, Reading(reason=str(error)))
    finally:
        for sample in (before, after):
            _free(sample)


def _free(sample: GpmSample) -> None:
    if not isinstance(sample, str):
        with suppress(pynvml.NVMLError):
            pynvml.nvmlGpmSampleFree(sample)


def _averages(before: GpmSample, after: GpmSample, metrics: Sequence[int], window_s: float) -> dict[int, Reading]:
    for sample in (before, after):
        if isinstance(sample, str):
            raise NotOfferedError(sample)
    if window_s <= LEAST_WINDOW_S:
        raise NotOfferedError(f"the window of {window_s:.3g} s is shorter than the {LEAST_WINDOW_S} s that GPM needs")
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.version, request.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(metrics)
    request.sample1, request.sample2 = before, after
    for place, metric in enumerate(metrics):
        request.metrics[place].metricId = metric
    ask(pynvml.nvmlGpmMetricsGet, request)
    return {metric: reading(_average, request.metrics[place]) for place, metric in enumerate(metrics)}


def _average(metric: Any) -> Reading:
    check(metric.nvmlReturn, f"nvmlGpmMetricsGet({metric.metricId})")
    if not isfinite(metric.value):
        raise NotOfferedError(f"GPM returned {metric.value}")
    return Reading(value=metric.value, source="GPM")


_MIB_BYTES = 2**20
_SM_BUSY = pynvml.NVML_GPM_METRIC_SM_UTIL
_DRAM_BANDWIDTH = pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL
_GPM_MIB_PER_S = {
    "pcie_sent": pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC,
    "pcie_received": pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC,
    "nvlink_sent": pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC,
    "nvlink_received": pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC,
}
_GPM_METRICS = (_SM_BUSY, _DRAM_BANDWIDTH, *_GPM_MIB_PER_S.values())


class Telemetry:
    """Call `begin` and `end` once, with all devices idle."""

    def __init__(self, watches: Mapping[str, "Watch | str"]) -> None:
        self.watches = watches

    def begin(self) -> None:
        for watch in self.watches.values():
            if not isinstance(watch, str):
                watch.begin()

    def end(self, steps: int) -> dict[str, DeviceTelemetry | str]:
        for watch in self.watches.values():
            if not isinstance(watch, str):
                watch.end()
        return {
            device: watch if isinstance(watch, str) else watch.telemetry(steps)
            for device, watch in self.watches.items()
        }


def telemetry_of(devices: Sequence[torch.device]) -> Telemetry:
    names, uuids = dict.fromkeys(map(str, devices)), uuids_of(devices)
    reason = "there is telemetry of NVIDIA's GPUs alone"
    if uuids:
        try:
            start()
            return nvml_telemetry(uuids)
        except NotOfferedError as error:
            reason = str(error)
    return Telemetry(dict.fromkeys(names, reason))


def nvml_telemetry(uuids: Mapping[str, str], now: Callable[[], float] = time.time) -> Telemetry:
    """NVML must have been started. `now` returns seconds since 1970, as the driver's samples have."""
    watches: dict[str, Watch | str] = {}
    for device, uuid in uuids.items():
        try:
            watches[device] = Watch(find_gpu(device, uuid), now)
        except NotOfferedError as error:
            watches[device] = str(error)
    return Telemetry(watches)


class Watch:
    def __init__(self, gpu: Gpu, now: Callable[[], float]) -> None:
        self._gpu, self._now = gpu, now

    def begin(self) -> None:
        self._before = read_counters(self._gpu)
        self._sample_before = take_sample(self._gpu)
        self._begin_s = self._now()

    def end(self) -> None:
        self._end_s = self._now()
        self._sample_after = take_sample(self._gpu)
        self._after = read_counters(self._gpu)

    def telemetry(self, steps: int) -> DeviceTelemetry:
        window_s = self._end_s - self._begin_s
        edges = self._before, self._after, window_s
        gpm = averages(self._sample_before, self._sample_after, _GPM_METRICS, window_s)
        traffic = {f"{name}_bytes_per_step": _per_step(self._traffic(name, gpm), steps) for name in TRAFFIC}
        return DeviceTelemetry(
            uuid=self._gpu.uuid,
            window_s=window_s,
            sm_busy_percent=gpm[_SM_BUSY],
            dram_bandwidth_percent=gpm[_DRAM_BANDWIDTH],
            kernel_running_percent=self._samples(pynvml.NVML_GPU_UTILIZATION_SAMPLES),
            memory_in_use_percent=self._samples(pynvml.NVML_MEMORY_UTILIZATION_SAMPLES),
            power_w=self._samples(pynvml.NVML_TOTAL_POWER_SAMPLES, unit=1e-3),
            sm_clock_mhz=self._clock(pynvml.NVML_PROCESSOR_CLK_SAMPLES, pynvml.NVML_CLOCK_SM),
            memory_clock_mhz=self._clock(pynvml.NVML_MEMORY_CLK_SAMPLES, pynvml.NVML_CLOCK_MEM),
            energy_per_step_j=_per_step(reading(energy_j, *edges), steps),
            throttled_s={cause: reading(throttled_s, cause, *edges) for cause in THROTTLING},
            **traffic,
        )

    def _traffic(self, name: str, gpm: Mapping[int, Reading]) -> Reading:
        window_s = self._end_s - self._begin_s
        counted = reading(traffic_bytes, name, self._before, self._after, window_s)
        rate = gpm[_GPM_MIB_PER_S[name]]
        if counted.value is not None:
            return counted
        if rate.value is None:
            return Reading(reason=f"{counted.reason}; {rate.reason}")
        return Reading(value=rate.value * _MIB_BYTES * window_s, source=rate.source)

    def _samples(self, kind: int, unit: float = 1.0) -> Reading:
        return reading(mean_of_samples, self._gpu, kind, self._begin_s, self._end_s, unit)

    def _clock(self, samples: int, clock: int) -> Reading:
        """Without samples the clock at the window's end, which drops only some time after the work."""
        mean = self._samples(samples)
        return mean if mean.value is not None else reading(_clock_now, self._gpu, clock)


def _clock_now(gpu: Gpu, clock: int) -> Reading:
    return Reading(value=ask(pynvml.nvmlDeviceGetClockInfo, gpu.handle, clock), source="at the window's end", span_s=0)


def _per_step(total: Reading, steps: int) -> Reading:
    return total if total.value is None else replace(total, value=total.value / steps)


def mean_of_samples(gpu: Gpu, kind: int, begin_s: float, end_s: float, unit: float = 1.0) -> Reading:
    """The mean of the driver's samples between two moments in seconds since 1970, times `unit`.

    A sample stands for the time since the one before it, so the first one is dropped. The driver's buffer may hold the
    end of a long window only. Raises NotOfferedError if fewer than two samples fall into the window.
    """
    value_type, samples = ask(pynvml.nvmlDeviceGetSamples, gpu.handle, kind, int(begin_s * 1e6))
    by_time = sorted(samples, key=lambda sample: sample.timeStamp)
    inside = [sample for sample in by_time if sample.timeStamp <= end_s * 1e6]
    if len(inside) < 2:
        lacking = "one sample of the driver falls into the window, and it covers time before it"
        raise NotOfferedError(lacking if inside else "no sample of the driver falls into the window")
    first, *rest = inside
    return Reading(
        value=unit * sum(counter(value_type, sample.sampleValue).value for sample in rest) / len(rest),
        source="driver's samples",
        span_s=(rest[-1].timeStamp - first.timeStamp) / 1e6,
    )
