"""A described machine: its devices, its host, and the links between them, as its file has them. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal, NoReturn

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from dpbench.text.outside import quoted
from dpbench.text.validated import Frozen, nearest, one_of


class Kind(StrEnum):
    """Operators of one kind have one efficiency."""

    CONVOLUTION = "convolution"
    MATMUL = "matmul"
    BATCHED_MATMUL = "batched_matmul"
    NORM = "norm"
    SOFTMAX = "softmax"
    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    INDEX = "index"
    MOVE = "move"


Format = Literal["float32", "tf32", "bfloat16"]
"""A number format of products."""
FLOP_KINDS = (Kind.CONVOLUTION, Kind.MATMUL, Kind.BATCHED_MATMUL)
"""The others cost their bytes alone."""


class HostCost(StrEnum):
    """What the host does for a step, in seconds each.

    An operator in the forward has two parts. `FORWARD_PYTHON` holds the interpreter lock, its module's share included;
    `FORWARD_NATIVE` does not. `BACKWARD` is an operator that the engine calls. `VIEW` is a call that launches nothing.
    `REPLICATE_MODULE` is the work of ``torch.nn.parallel.replicate`` for one module on one device. `STEP` is
    the loop around a step. `GRAPH_LAUNCH` is without `GRAPH_NODE`, which each node of the graph costs.
    """

    FORWARD_PYTHON = "forward_python"
    FORWARD_NATIVE = "forward_native"
    BACKWARD = "backward"
    VIEW = "view"
    COPY = "copy"
    EVENT_RECORD = "event_record"
    STREAM_WAIT = "stream_wait"
    STREAM_SWITCH = "stream_switch"
    STREAM_LOOKUP = "stream_lookup"
    HANDLE_LOOKUP = "handle_lookup"
    RECORD_STREAM = "record_stream"
    ENGINE_HANDOVER = "engine_handover"
    HOST_WAIT = "host_wait"
    COLLECTIVE = "collective"
    REPLICATE_MODULE = "replicate_module"
    THREAD_START = "thread_start"
    BACKWARD_START = "backward_start"
    OPTIMISER_PARAMETER = "optimiser_parameter"
    STEP = "step"
    GRAPH_LAUNCH = "graph_launch"
    GRAPH_NODE = "graph_node"


# By dimension, what one of each unit is in SI.
UNITS = {
    "bytes": {"B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30},
    "bandwidth": {"B/s": 1.0, "MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12},
    "flops": {"FLOP/s": 1.0, "GFLOP/s": 1e9, "TFLOP/s": 1e12},
    "seconds": {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0},
    "ratio": {"ratio": 1.0},
}
# By dimension, the least and the most in SI units: further from any machine than its numbers are uncertain.
BOUNDS = {
    "bytes": (1.0, 1e18),
    "bandwidth": (1e3, 1e18),
    "flops": (1e6, 1e24),
    "seconds": (1e-15, 1e3),
    "ratio": (1e-3, 1e3),
}
_DIMENSIONS = {unit: dimension for dimension, units in UNITS.items() for unit in units}


def refuse(complaint: str) -> NoReturn:
    """Raise an error of pydantic with this text."""
    raise PydanticCustomError("refused", "{complaint}", {"complaint": complaint})


class Table(Frozen):
    """A table of a machine's file. An unknown key is refused with the keys that are allowed."""

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, table: Any) -> Any:
        names = one_of(cls.model_fields)
        if not isinstance(table, dict | cls):
            refuse(f"{quoted(table)} is not allowed; allowed: a table with {names}")
        for key in table if isinstance(table, dict) else ():
            if key not in cls.model_fields:
                refuse(f"unknown key {quoted(key)}{nearest(key, cls.model_fields)}; allowed: {names}")
        return table


class Quantity(Table):
    """A positive number that is not known exactly: `low` <= `mid` <= `high`, in SI units, and its `source`.

    A file has ``{ low = 1, mid = 1.5, high = 3, unit = "us", source = "..." }``.
    """

    unit: str
    low: float = Field(strict=True)
    mid: float = Field(strict=True)
    high: float = Field(strict=True)
    source: str = Field(pattern=r"\S")

    @field_validator("low", "mid", "high")
    @classmethod
    def _in_si(cls, number: float, info: ValidationInfo) -> float:
        dimension = _DIMENSIONS.get(info.data.get("unit", ""))
        if dimension is None:
            return number  # `_of` refuses the unit
        unit, (least, most) = UNITS[dimension][info.data["unit"]], BOUNDS[dimension]
        least = info.data.get("mid", info.data.get("low", least))
        if not least <= number * unit <= most:
            refuse(f"{quoted(number)} is not allowed; allowed: {least / unit:g} to {most / unit:g}, low <= mid <= high")
        return number * unit

    def times(self, factor: float) -> "Quantity":
        return self.model_copy(update={name: factor * getattr(self, name) for name in ("low", "mid", "high")})


def _of(dimension: str, most: float = float("inf")) -> AfterValidator:
    """Refuse a quantity of another dimension, or above `most`."""

    def check(quantity: Quantity) -> Quantity:
        if quantity.unit not in UNITS[dimension]:
            refuse(f"unit: {quoted(quantity.unit)} is not allowed; allowed: {one_of(UNITS[dimension])}")
        if quantity.high > most:
            refuse(f"high: {quantity.high} is not allowed; allowed: at most {most:g}")
        return quantity

    return AfterValidator(check)


Bytes = Annotated[Quantity, _of("bytes")]
Bandwidth = Annotated[Quantity, _of("bandwidth")]
Flops = Annotated[Quantity, _of("flops")]
Seconds = Annotated[Quantity, _of("seconds")]
Ratio = Annotated[Quantity, _of("ratio")]
Share = Annotated[Quantity, _of("ratio", most=1.0)]


def part(kind: str) -> BeforeValidator:
    """Put the part of this name in place of a text. The validation's context has all parts by kind."""

    def resolve(value: object, info: ValidationInfo) -> object:
        known_parts = (info.context or {}).get(kind, {})
        if not isinstance(value, str):
            return value
        if value not in known_parts:
            allowed = f"a table, or one of {one_of(known_parts)}"
            refuse(f"{quoted(value)} is not allowed{nearest(value, known_parts)}; allowed: {allowed}")
        return {**known_parts[value], "name": value} if kind in ("device", "host") else known_parts[value]

    return BeforeValidator(resolve)


def _with_all(names: Collection[str]) -> AfterValidator:
    """Refuse a table without one of these keys."""

    def check(table: dict[str, Quantity]) -> dict[str, Quantity]:
        for name in names:
            if name not in table:
                refuse(f"{name} is missing; allowed: {one_of(names)}")
        return table

    return AfterValidator(check)


class Efficiency(Table):
    """Shares of a device's peaks and of its bandwidth."""

    flop: Annotated[dict[Kind, Share], _with_all(FLOP_KINDS)]
    byte: Annotated[dict[Kind, Share], _with_all(list(Kind))]


class Device(Table):
    """`peak` has dense FLOP/s, `bandwidth` of its memory bytes/s.

    `gap` is the time between two queued kernels. `factor` multiplies all times of its operators.
    """

    name: str = "device"
    memory: Bytes
    peak: Annotated[dict[Format, Flops], _with_all(["float32"])]
    bandwidth: Bandwidth
    efficiency: Annotated[Efficiency, part("efficiency")]
    gap: Annotated[Seconds, part("gap")]
    factor: Annotated[Ratio, part("board")]


class Host(Table):
    """The host of one machine. `factor` multiplies all its costs."""

    name: str = "host"
    costs: Annotated[dict[HostCost, Seconds], _with_all(list(HostCost)), part("costs")]
    factor: Ratio


class Link(Table):
    """`bandwidth` is what a copy reaches in one direction. A route has the largest latency of its links."""

    bandwidth: Bandwidth
    latency: Seconds


@dataclass(frozen=True)
class Ring:
    """What NCCL's rings run over.

    `bus_bandwidth` in bytes/s, of an all-reduce among n devices: 2 (n - 1) / n x bytes / time. `hop` names the kind of
    a ring's step: ``nvlink`` or ``pcie``. With `machines` > 1, as many steps are over the network. A message takes
    `base`, and `step` for each step of the ring, or `far_step` over the network.
    """

    bus_bandwidth: Bandwidth
    hop: str
    base: Seconds
    step: Seconds
    far_step: Seconds
    machines: int = 1


@dataclass(frozen=True)
class Machine:
    """A machine, or several equal ones, with the `devices` of all.

    `links` has each direction of a link by its name. `routes` maps a pair (source, destination) to the links that a
    copy takes; None stands for the host. `ring` is None for a single device.
    """

    name: str
    devices: int
    device: Device
    host: Host
    links: Mapping[str, Link]
    routes: Mapping[tuple[int | None, int | None], tuple[str, ...]]
    ring: Ring | None
    notes: tuple[str, ...] = ()
