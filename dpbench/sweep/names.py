"""One line on each name of the vocabulary, for `dpbench list`."""
# MERGED-DOC sweep.names: """The closed vocabulary of specs, case ids and records."""
# MERGED-DOC sweep.workload_name: """Workload names: ``family/size``, or a user's ``package.module:factory``."""

from enum import StrEnum

from dpbench.sweep.explain import nearest, one_of


class Family(StrEnum):
    """A kind of model; with a `Size` it names a workload, as in ``mlp/small``.

    EMBEDDING_SPARSE is EMBEDDING with sparse gradients.
    """

    MLP = "mlp"
    CONVNET = "convnet"
    TRANSFORMER = "transformer"
    EMBEDDING = "embedding"
    EMBEDDING_SPARSE = "embedding_sparse"


class Size(StrEnum):
    TINY = "tiny"
    SMALL = "small"
    BASE = "base"
    LARGE = "large"


class Mode(StrEnum):
    """TRAIN is zero_grad, forward, loss, backward, optimiser step; INFER is forward under no_grad."""

    TRAIN = "train"
    INFER = "infer"


class Dtype(StrEnum):
    """Of parameters and floating-point inputs."""

    FLOAT32 = "float32"
    FLOAT64 = "float64"
    BFLOAT16 = "bfloat16"


class Data(StrEnum):
    """RANDOM is drawn from the case's seed; DIGITS is scikit-learn's 1,797 bundled 8x8 images."""

    RANDOM = "random"
    DIGITS = "digits"


_ALLOWED = f"family/size with a family of {one_of(Family)} and a size of {one_of(Size)}, or package.module:factory"


def is_factory(workload: str) -> bool:
    return ":" in workload


def parse_workload(text: str) -> str:
    """The name as it stands, its shape checked; whether a factory loads is for the probe child to say.

    Raises ValueError, naming what is allowed.
    """
    if is_factory(text):
        module, _, factory = text.partition(":")
        if not all(part.isidentifier() for part in (*module.split("."), factory)):
            raise ValueError(f"{text!r} is no workload; allowed: {_ALLOWED}")
        return text
    family, _, size = text.partition("/")
    if family not in list(Family):
        raise ValueError(f"{text!r} is no workload{nearest(family, Family)}; allowed: {_ALLOWED}")
    if size not in list(Size):
        raise ValueError(f"{text!r} has no known size{nearest(size, Size)}; allowed: {_ALLOWED}")
    return text


FAMILIES: dict[Family, str] = {
    Family.MLP: "launch-bound: many small linear layers",
    Family.CONVNET: "ResNet layout with batch norm; base is ResNet-50 with 25,557,032 parameters",
    Family.TRANSFORMER: "GPT-2 layout with tied head; small has 124,439,808 parameters",
    Family.EMBEDDING: "parameter-heavy: large tables, dense gradients",
    Family.EMBEDDING_SPARSE: "the same with sparse gradients",
}

SIZES = tuple(Size)

MODES: dict[Mode, str] = {
    Mode.TRAIN: "zero_grad, forward, loss, backward, optimiser step",
    Mode.INFER: "forward under no_grad",
}

METRICS: dict[str, str] = {
    "step_time_s": "seconds per step: median over rounds of the median over samples, with a 95 % interval",
    "ratio": "step time over the reference variant's in the same run, with a 95 % interval",
    "percent_of_limit": "one device's time for its share alone, over the step time; where each lane has a device",
    "percent_of_single": "one device's time for the whole batch, over the step time; where lanes share a device",
    "throughput": "batch items per second",
    "skew_s": "per step, the slowest rank's time less the fastest's; one process per device only",
    "rank_lag_s": "per rank, the median of its step time less the fastest's; one process per device only",
    "phases_s": "seconds by phase of the step, from steps beside the samples, or why there are none",
    "relative_error": "distance of the gradients from those of the plain module run chunk by chunk",
    "peak_rss_bytes": "the most host memory that each process of the case held, summed",
    "peak_device_bytes": "the most that the allocator of each device had given out during the samples",
    "peak_reserved_bytes": "the most that it had taken from the device",
    "telemetry": "of each GPU during the samples: utilisation, power, energy, traffic, clocks, time throttled",
}
