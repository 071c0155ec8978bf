"""GPM, the hardware counters of Hopper and newer GPUs: two samples, and averages over exactly the time between."""

from collections.abc import Sequence
from contextlib import suppress
from math import isfinite
from typing import Any

import pynvml

from dpbench.measure.gpu.nvml import Gpu, NotOfferedError, ask, check, reading
from dpbench.results.readings import Reading

LEAST_WINDOW_S = 0.1
"""Two samples must be further apart than the counters' own refresh (nvml.h, nvmlGpmSampleGet)."""

Sample = Any
"""A buffer of NVML's; a reason, a str, where the GPU has no GPM or it may not be read."""


def take_sample(gpu: Gpu) -> Sample:
    try:
        if not ask(pynvml.nvmlGpmQueryDeviceSupport, gpu.handle).isSupportedDevice:
            return "this GPU has no GPM; Hopper and newer have"
        sample = ask(pynvml.nvmlGpmSampleAlloc)
    except NotOfferedError as error:
        return str(error)
    try:
        return ask(pynvml.nvmlGpmSampleGet, gpu.handle, sample)
    except NotOfferedError as error:
        _give_back(sample)
        return str(error)


def averages(before: Sample, after: Sample, metrics: Sequence[int], window_s: float) -> dict[int, Reading]:
    """By metric, between two samples, which are given back to NVML."""
    try:
        return _averages(before, after, metrics, window_s)
    except NotOfferedError as error:
        return dict.fromkeys(metrics, Reading(reason=str(error)))
    finally:
        for sample in (before, after):
            _give_back(sample)


def _give_back(sample: Sample) -> None:
    if not isinstance(sample, str):
        with suppress(pynvml.NVMLError):
            pynvml.nvmlGpmSampleFree(sample)


def _averages(before: Sample, after: Sample, metrics: Sequence[int], window_s: float) -> dict[int, Reading]:
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


def _average(answer: Any) -> Reading:
    check(answer.nvmlReturn, f"nvmlGpmMetricsGet({answer.metricId})")
    if not isfinite(answer.value):
        raise NotOfferedError(f"GPM answered {answer.value}")
    return Reading(value=answer.value, source="GPM")
