"""GPM, the hardware counters of Hopper and newer GPUs: averages between two samples."""

from collections.abc import Sequence
from contextlib import suppress
from math import isfinite
from typing import Any

import pynvml

from dpbench.measure.gpu.nvml import Gpu, NotOfferedError, ask, check, reading
from dpbench.results.readings import Reading

LEAST_WINDOW_S = 0.1
"""The counters are refreshed this often, so two samples must be further apart (nvml.h, nvmlGpmSampleGet)."""

GpmSample = Any
"""A buffer of NVML, or a str with the reason why GPM cannot be read."""


def take_sample(gpu: Gpu) -> GpmSample:
    """Return a sample, to be passed to `averages`, or the reason why there is none.

    Raises LostGpuError.
    """
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
    """Return each metric's average between two samples, and free the samples.

    Raises LostGpuError.
    """
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
