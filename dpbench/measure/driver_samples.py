"""The driver's own ring buffers: it samples, this reads once, after the window."""

import pynvml

from dpbench.measure.nvml import Gpu, NotOfferedError, ask, counter
from dpbench.results.telemetry import Reading


def mean_of_samples(gpu: Gpu, kind: int, begin_s: float, end_s: float, unit: float = 1.0) -> Reading:
    """The mean of the samples taken between two moments in seconds since 1970, times `unit`.

    A buffer holds so many samples and no more, so of a long window it may show the end alone; the reading's span is
    from the first to the last sample. Raises NotOfferedError where none falls between.
    """
    value_type, samples = ask(pynvml.nvmlDeviceGetSamples, gpu.handle, kind, int(begin_s * 1e6))
    inside = [each for each in samples if each.timeStamp <= end_s * 1e6]
    if not inside:
        raise NotOfferedError("none of the driver's samples falls into the window")
    values = [counter(value_type, each.sampleValue).value for each in inside]
    times_us = [each.timeStamp for each in inside]
    return Reading(
        value=unit * sum(values) / len(values),
        source="driver's samples",
        span_s=(max(times_us) - min(times_us)) / 1e6,
    )
