"""The names in sweep files, case ids and records, with a line on each for `dpbench list`, and devices as text."""

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from dpbench.text.outside import quoted
from dpbench.text.validated import nearest, one_of


class Family(StrEnum):
    """With a `Size` it names a workload, as in ``mlp/small``."""

    MLP = "mlp"
    CONVNET = "convnet"
    TRANSFORMER = "transformer"
    EMBEDDING = "embedding"
    EMBEDDING_SPARSE = "embedding_sparse"
    MANY = "many"


FAMILIES: dict[Family, str] = {
    Family.MLP: "launch-bound: many small linear layers",
    Family.CONVNET: "ResNet layout with batch norm; base is ResNet-50 with 25,557,032 parameters",
    Family.TRANSFORMER: "GPT-2 layout with tied head; small has 124,439,808 parameters",
    Family.EMBEDDING: "parameter-heavy: large tables, dense gradients",
    Family.EMBEDDING_SPARSE: "embedding with sparse gradients",
    Family.MANY: "many small tensors, each in a module of its own, and few operators",
}


UNITS: dict[Family, str] = {
    Family.MLP: "rows",
    Family.CONVNET: "images",
    Family.TRANSFORMER: "sequences",
    Family.EMBEDDING: "queries",
    Family.EMBEDDING_SPARSE: "queries",
    Family.MANY: "rows",
}
"""The unit of ``items/s``."""


class Size(StrEnum):
    TINY = "tiny"
    SMALL = "small"
    BASE = "base"
    LARGE = "large"


class Mode(StrEnum):
    TRAIN = "train"
    INFER = "infer"


MODES: dict[Mode, str] = {
    Mode.TRAIN: "zero_grad, forward, loss, backward, optimiser step",
    Mode.INFER: "forward under no_grad",
}


class Dtype(StrEnum):
    """The precision of a case: the type of weights and inputs, or that of autocast around float32 weights."""

    FLOAT32 = "float32"
    FLOAT64 = "float64"
    BFLOAT16 = "bfloat16"
    AUTOCAST_BFLOAT16 = "autocast-bfloat16"
    AUTOCAST_FLOAT16 = "autocast-float16"

    @property
    def autocast(self) -> str | None:
        """Autocast's type, or None without autocast."""
        kind, _, low = self.partition("-")
        return low if kind == "autocast" else None

    @property
    def weights(self) -> str:
        """The type of weights and floating-point inputs."""
        return "float32" if self.autocast else str(self)


DTYPES: dict[Dtype, str] = {
    Dtype.FLOAT32: "weights and inputs in float32",
    Dtype.FLOAT64: "weights and inputs in float64",
    Dtype.BFLOAT16: "weights and inputs in bfloat16",
    Dtype.AUTOCAST_BFLOAT16: "weights in float32; forward and loss under torch.autocast to bfloat16",
    Dtype.AUTOCAST_FLOAT16: "weights in float32; forward and loss under torch.autocast to float16, with GradScaler",
}


class Data(StrEnum):
    """DIGITS is scikit-learn's 1,797 bundled 8x8 images."""

    RANDOM = "random"
    DIGITS = "digits"


METRICS: dict[str, str] = {
    "step_time_s": "seconds per step: median over rounds of the round's median, with a 95 % interval",
    "ratio": "step time over the reference variant's in the same run, with a 95 % interval",
    "percent_of_limit": "one device's time for its share alone, over the step time; if each lane has a device",
    "percent_of_single": "one device's time for the whole batch, over the step time; if lanes share a device",
    "throughput": "batch items per second",
    "skew_s": "per step, the slowest rank's time minus the fastest's; only with one process per device",
    "rank_lag_s": "per rank, the median of its step time minus the fastest's; only with one process per device",
    "machine_skew_s": "per step, the slowest machine's lag minus the fastest's; only with several machines",
    "compile_s": "seconds in which torch compiled, before the samples; of the round that took longest",
    "phases_s": "seconds by phase of the step, from steps beside the samples, or why there are none; of rank 0",
    "slowest_rank_phases_s": "the same of the slowest rank; only with one process per device",
    "relative_error": "distance of the gradients from those of the plain module, run chunk by chunk",
    "skipped_steps": "steps that GradScaler skipped, because gradients overflowed; only with autocast-float16",
    "peak_rss_bytes": "the most host memory of each process of the case, summed",
    "peak_device_bytes": "the most memory that each device's allocator had allocated during the samples",
    "peak_reserved_bytes": "the most memory that each device's allocator had reserved during the samples",
    "telemetry": "of each GPU during the samples: utilisation, power, energy, traffic, clocks, throttled time",
}

_ALLOWED = f"family/size with a family of {one_of(Family)} and a size of {one_of(Size)}, or package.module:factory"


IMPORT_FOLDERS = ("", "src")


def is_factory(text: str) -> bool:
    """Whether the text has the form ``package.module:attribute``."""
    return ":" in text


def parse_factory(text: str, fault: str) -> str:
    """Raise ValueError with `fault`."""
    module, _, attribute = text.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), attribute)):
        raise ValueError(fault)
    return text


@cache
def registered(kind: str) -> Mapping[str, EntryPoint]:
    """What installed packages register as ``dpbench.variants`` or ``dpbench.workloads``; nothing is imported."""
    return {point.name: point for point in entry_points(group=f"dpbench.{kind}")}


SUITES = ("asv", "pytest")


def borrowed(workload: str) -> tuple[str, str] | None:
    """Suite and name, such as ``asv time_step.Step.time_forward``, or None."""
    suite, _, name = workload.partition(" ")
    return (suite, name) if suite in SUITES and name else None


def uses_file(workload: str) -> str | None:
    """The file of ``uses FILE``, which a gate counts beside steps, or None."""
    kind, _, file = workload.partition(" ")
    return file if kind == "uses" and file else None


def parse_workload(text: str) -> str:
    """Check the form, and return the factory for a registered name; raise ValueError."""
    if text in registered("workloads"):
        text = registered("workloads")[text].value
    if is_factory(text):
        return parse_factory(text, f"{text!r} is no workload; allowed: {_ALLOWED}")
    family, _, size = text.partition("/")
    if family not in list(Family):
        raise ValueError(f"{text!r} is no workload{nearest(family, Family)}; allowed: {_ALLOWED}")
    if size not in list(Size):
        raise ValueError(f"{text!r} has no known size{nearest(size, Size)}; allowed: {_ALLOWED}")
    return text


_TERM = re.compile(r"(?P<kind>[a-z]+)(?::(?P<index>\d{1,6}))?(?:\*(?P<count>\d{1,6}))?", re.ASCII)
_ALLOWED_DEVICES = "devices are joined by '+', and '*n' repeats one, as in cpu*4, cuda:0*2, cuda:0+cuda:1, cuda*4"
MAX_LANES = 1024


def parse_devices(text: str) -> tuple[str, ...]:
    """A device for each lane of a text such as ``cpu*2``; raise ValueError with what is allowed."""
    lanes = tuple(lane for term in text.split("+") for lane in _parse_term(term.strip(), text))
    if len(lanes) > MAX_LANES:
        raise ValueError(f"{quoted(text)} has {len(lanes)} lanes; at most {MAX_LANES} are allowed")
    return lanes


def _parse_term(term: str, text: str) -> list[str]:
    match = _TERM.fullmatch(term)
    if match is None:
        raise ValueError(f"{quoted(text)} is not a device list; {_ALLOWED_DEVICES}")
    kind, index, count = match["kind"], match["index"], int(match["count"] or 1)
    if not 1 <= count <= MAX_LANES:
        raise ValueError(f"{quoted(text)} repeats a device {count} times; 1 to {MAX_LANES} are allowed")
    if kind == "cpu":
        if index not in (None, "0"):
            raise ValueError(f"{quoted(text)} names a cpu other than cpu; there is one, and cpu*n makes n lanes of it")
        return ["cpu"] * count
    if index is None:
        return [f"{kind}:{i}" for i in range(count)]
    return [f"{kind}:{int(index)}"] * count


def format_devices(lanes: tuple[str, ...]) -> str:
    """The text that `parse_devices` reads: ``cpu*2``, not ``cpu+cpu``."""
    runs: list[tuple[str, int]] = []
    for lane in lanes:
        if runs and runs[-1][0] == lane:
            runs[-1] = (lane, runs[-1][1] + 1)
        else:
            runs.append((lane, 1))
    return "+".join(lane if n == 1 else f"{lane}*{n}" for lane, n in runs)


def short_devices(lanes: tuple[str, ...]) -> str:
    """The shortest text that `parse_devices` reads: ``cuda*8`` for cuda:0 to cuda:7."""
    kind = lanes[0].partition(":")[0]
    numbered = tuple(f"{kind}:{i}" for i in range(len(lanes)))
    return f"{kind}*{len(lanes)}" if len(lanes) > 1 and lanes == numbered else format_devices(lanes)


def are_shared(lanes: tuple[str, ...]) -> bool:
    """Whether two lanes run on one device."""
    return len(set(lanes)) < len(lanes)
