"""A described machine: its devices, its host, and the links between them. Pure.

Every number is a `Quantity`: low, mid and high in SI units, with its source.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """The kinds of operators whose efficiency differs."""

    CONVOLUTION = "convolution"
    MATMUL = "matmul"
    BATCHED_MATMUL = "batched_matmul"
    NORM = "norm"
    SOFTMAX = "softmax"
    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    INDEX = "index"
    MOVE = "move"


FLOP_KINDS = (Kind.CONVOLUTION, Kind.MATMUL, Kind.BATCHED_MATMUL)
"""The kinds whose floating-point operations are counted. The others cost their bytes alone."""


class HostCost(StrEnum):
    """What the host does for a step, in seconds each.

    An operator in the forward has two parts. `FORWARD_PYTHON` holds the interpreter lock, its module's share included;
    `FORWARD_NATIVE` does not. `BACKWARD` is an operator that the engine calls. `VIEW` is a call that launches nothing.
    `REPLICATE_MODULE` is the work of ``torch.nn.parallel.replicate`` for one module on one device. `LOCK_HANDOVER` is
    paid when another thread takes the interpreter lock. `STEP` is the loop around a step.
    `GRAPH_LAUNCH` is a launch of a CUDA graph, without what it costs for each of its nodes, `GRAPH_NODE`.
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
    LOCK_HANDOVER = "lock_handover"
    BACKWARD_START = "backward_start"
    OPTIMISER_PARAMETER = "optimiser_parameter"
    STEP = "step"
    GRAPH_LAUNCH = "graph_launch"
    GRAPH_NODE = "graph_node"


@dataclass(frozen=True)
class Quantity:
    """A positive number that is not known exactly: `low` <= `mid` <= `high`, in SI units, and its `source`."""

    low: float
    mid: float
    high: float
    source: str


@dataclass(frozen=True)
class Device:
    """An accelerator.

    `peaks` are dense FLOP/s by number format: ``float32``, and ``tf32`` where it has one. `bandwidth` is of its memory,
    in bytes/s. `flop_efficiency` and `byte_efficiency` are shares of these peaks by kind of operator. `gap` is the time
    between two queued kernels. `factor` multiplies all times of its operators.
    """

    name: str
    memory_bytes: float
    peaks: Mapping[str, Quantity]
    bandwidth: Quantity
    flop_efficiency: Mapping[Kind, Quantity]
    byte_efficiency: Mapping[Kind, Quantity]
    gap: Quantity
    factor: Quantity


@dataclass(frozen=True)
class Host:
    """The host of one machine. `factor` multiplies all its costs."""

    name: str
    costs: Mapping[HostCost, Quantity]
    factor: Quantity


@dataclass(frozen=True)
class LinkKind:
    """`bandwidth` in bytes/s, that a copy reaches in one direction; `latency` of a copy, in seconds.

    A route has the largest latency of its links.
    """

    bandwidth: Quantity
    latency: Quantity


@dataclass(frozen=True)
class Ring:
    """What NCCL's rings run over.

    `bus_bandwidth` in bytes/s, of an all-reduce among n devices: 2 (n - 1) / n x bytes / time. `hop` names the kind of
    a ring's step: ``nvlink`` or ``pcie``. With `machines` > 1, as many steps are over the network. A message takes
    `base`, and `step` for each step of the ring, or `far_step` over the network, in seconds.
    """

    bus_bandwidth: Quantity
    hop: str
    base: Quantity
    step: Quantity
    far_step: Quantity
    machines: int = 1


@dataclass(frozen=True)
class Machine:
    """A machine, or several equal ones.

    `devices` is the number of devices of all machines together. `links` maps the name of each direction
    of a link to one of `kinds`, whose links share their parameters. `routes` maps a pair (source, destination) to the
    links that a copy takes; None stands for the host. `ring` is None for a single device.
    """

    name: str
    devices: int
    device: Device
    host: Host
    links: Mapping[str, str]
    kinds: Mapping[str, LinkKind]
    routes: Mapping[tuple[int | None, int | None], tuple[str, ...]]
    ring: Ring | None
    notes: tuple[str, ...] = field(default=())
