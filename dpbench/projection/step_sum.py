"""The time of a step as a sum that a person can check. Pure.

    step   = max(host, device)
    host   = calls of the step x the cost of each
    device = input + start + computation of the largest share + what communication cannot hide

Weights are hidden by the forward but for their first piece, and gradients by the backward but for their last one. The
stock wrapper hides neither. Bytes go over the busiest link of their routes, or over NCCL's ring.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from dpbench.cases.variants import VariantId, VariantName
from dpbench.projection.described.machine import FLOP_KINDS, HostCost, Kind, Machine
from dpbench.projection.fitted import UNFITTED, Fitted
from dpbench.projection.step_counts import HOME, MAIN, StepCounts
from dpbench.records.counts import Phase

MIB = 1024 * 1024
_AUTOCAST = frozenset({Kind.CONVOLUTION, Kind.MATMUL, Kind.BATCHED_MATMUL, Kind.NORM, Kind.ELEMENTWISE, Kind.REDUCTION})
"""The kinds whose tensors have half as many bytes under autocast."""
_CAST_BYTES = 6
"""Autocast reads four bytes of each weight and writes two."""
_FREE_SHARE = 0.95
"""The rest of a device's memory is the driver's and the allocator's."""


class Part(StrEnum):
    """A part of the device's time, or the host's whole time."""

    INPUT = "input"
    START = "start of the last device"
    WEIGHTS = "exposed weights"
    COMPUTE = "computation"
    BESIDE = "computation slowed by collectives"
    OUTPUTS = "outputs"
    GRADIENTS = "exposed gradients"
    HOST = "host"
    LOADER = "data loader"


@dataclass(frozen=True)
class StepSum:
    """A step's time in seconds. `parts` add up to `device_s`, and `hidden_s` is communication that costs nothing.

    `memory_bytes` is what the fullest device needs, None if it was not counted.
    """

    devices: int
    batch: int
    parts: Mapping[Part, float]
    host_s: float
    hidden_s: float = 0.0
    loader_s: float = 0.0
    memory_bytes: float | None = None
    device_memory_bytes: float = float("inf")

    @property
    def device_s(self) -> float:
        return sum(self.parts.values())

    @property
    def step_s(self) -> float:
        return max(self.host_s, self.device_s, self.loader_s)

    @property
    def bound_by(self) -> Part:
        """The loader, the host, or the largest part of the device's time."""
        if self.step_s == self.loader_s:
            return Part.LOADER
        if self.host_s > self.device_s:
            return Part.HOST
        return max(self.parts, key=lambda part: self.parts[part])

    @property
    def communication_s(self) -> float:
        """What is sent, hidden or not."""
        return self.hidden_s + sum(self.parts.get(part, 0.0) for part in (Part.WEIGHTS, Part.OUTPUTS, Part.GRADIENTS))

    @property
    def fits(self) -> bool | None:
        """Whether the step fits into memory, None if that was not counted."""
        return None if self.memory_bytes is None else self.memory_bytes <= _FREE_SHARE * self.device_memory_bytes


@dataclass(frozen=True)
class Setting:
    """How a step is taken, and the constants from published steps.

    `math` is default, float32, tf32 or bf16. With `ahead` the host begins a step before the devices end the last one.
    `one_device_s` is the measured step of one device; without it, peaks and efficiencies give it. `bucket_bytes` is the
    size of DDP's buckets.
    """

    math: str = "default"
    ahead: bool = False
    one_device_s: float | None = None
    bucket_bytes: float = 25 * MIB
    loader_items_per_s: float | None = None
    fitted: Fitted = UNFITTED


def sum_step(variant: VariantId, counts: StepCounts, single: StepCounts, machine: Machine, setting: Setting) -> StepSum:
    """Return the time of a variant's step. `single` has the counts of one device with its share of the batch.

    `counts` are those of `ddp` too if it is `single` itself.
    """
    is_single, is_ddp = variant.name is VariantName.SINGLE, variant.name is VariantName.DDP
    speed = _speed(single, machine, setting)
    compute = _largest_share(counts, machine, setting.math, speed)
    parts = {Part.INPUT: _input_s(counts, machine), Part.COMPUTE: sum(compute.values())}
    hidden = 0.0
    if is_ddp:
        parts[Part.COMPUTE] += speed * _bucket_copies_s(counts, machine)
        parts |= _ddp(counts, machine, setting, compute)
        sent = _all_reduce_s(sum(counts.gradient_bytes), len(_bucket_ends(counts, setting)), machine)
        hidden = sent - parts[Part.GRADIENTS]
    elif not is_single:
        own, hidden = _lanes(variant, counts, machine, setting, compute)
        parts |= own
    if is_ddp or variant.takes_nccl_route:
        parts[Part.BESIDE] = setting.fitted.beside * parts[Part.COMPUTE]
    devices = 1 if is_single else machine.devices
    batch = single.batch * devices
    items_per_s = setting.loader_items_per_s
    memory = max(counts.below("memory").values(), default=None)
    if memory is not None and is_ddp:
        memory += single.model.parameter_bytes  # the buckets
    return StepSum(
        devices,
        batch,
        {part: seconds for part, seconds in parts.items() if seconds > 0},
        host_s(variant, counts, machine, setting),
        max(hidden, 0.0),
        0.0 if items_per_s is None else batch / items_per_s,
        memory,
        machine.device.memory_bytes,
    )


# Computation


def compute_s(counts: StepCounts, device: int, machine: Machine, math: str) -> dict[str, float]:
    """Return the time of a device's operators by phase, from peaks and efficiencies."""
    found = {}
    for phase in Phase:
        place = ("work", device, phase)
        half = math == "bf16" and "bfloat16" in machine.device.peaks and phase != Phase.OPTIMISER
        seconds = counts.below(*place).get("kernels", 0.0) * machine.device.gap.mid
        for kind, number in counts.below(*place, "bytes").items():
            speed = machine.device.bandwidth.mid * machine.device.byte_efficiency[Kind(kind)].mid
            seconds += number / (2 if half and kind in _AUTOCAST else 1) / speed
        for kind, number in counts.below(*place, "flops").items():
            peak = machine.device.peaks[_format(machine, math, Kind(kind))].mid
            seconds += number / (peak * machine.device.flop_efficiency[Kind(kind)].mid)
        if half and phase == Phase.FORWARD:
            seconds += _CAST_BYTES * counts.model.parameter_bytes / 4 / _moved_per_s(machine)
        found[phase.value] = seconds
    return found


def _bucket_copies_s(counts: StepCounts, machine: Machine) -> float:
    """Return the time to copy each gradient into its bucket and out of it, reading and writing."""
    return 4 * sum(counts.gradient_bytes) / _moved_per_s(machine)


def _moved_per_s(machine: Machine) -> float:
    return machine.device.bandwidth.mid * machine.device.byte_efficiency[Kind.MOVE].mid


def has_tensor_format(machine: Machine, math: str) -> bool:
    """Return whether some products are computed in another format than float32."""
    return any(_format(machine, math, kind) != "float32" for kind in FLOP_KINDS)


def _format(machine: Machine, math: str, kind: Kind) -> str:
    peaks = machine.device.peaks
    if math == "bf16" and "bfloat16" in peaks:
        return "bfloat16"
    wants_tf32 = math in ("tf32", "bf16") or (math == "default" and kind is Kind.CONVOLUTION)
    return "tf32" if wants_tf32 and "tf32" in peaks else "float32"


def _speed(single: StepCounts, machine: Machine, setting: Setting) -> float:
    """Return what multiplies the times of operators: from the measured step of one device, or as fitted."""
    if setting.one_device_s is None:
        fitted, factor = setting.fitted, machine.device.factor.mid
        return factor * (fitted.speed_tf32 if has_tensor_format(machine, setting.math) else fitted.speed_float32)
    computed = sum(compute_s(single, HOME, machine, setting.math).values())
    return max(setting.one_device_s - _input_s(single, machine), 0.0) / computed


def _largest_share(counts: StepCounts, machine: Machine, math: str, speed: float) -> dict[str, float]:
    shares = [compute_s(counts, device, machine, math) for device in range(counts.devices)]
    largest = max(shares, key=lambda share: sum(share.values()))
    return {phase: seconds * speed for phase, seconds in largest.items()}


# Communication


def _lanes(
    variant: VariantId, counts: StepCounts, machine: Machine, setting: Setting, compute: Mapping[str, float]
) -> tuple[dict[Part, float], float]:
    """Return the parts of a scheme with one process, and the communication that is hidden."""
    is_stock = variant.name is not VariantName.TUNED
    has_ring = machine.ring is not None and (
        variant.takes_nccl_route or (variant.name is VariantName.TORCH_DP and machine.ring.hop == "nvlink")
    )
    seconds = {purpose: _sent_s(purpose, counts, machine, has_ring=has_ring) for purpose in ("weights", "gradients")}
    exposed = dict(seconds)
    for purpose, phase, option in (
        ("weights", Phase.FORWARD, "overlap_broadcast"),
        ("gradients", Phase.BACKWARD, "overlap_reduce"),
    ):
        if not is_stock and variant.values.get(option, True):
            pieces = max(_messages(purpose, counts), 1)
            exposed[purpose] = max(seconds[purpose] / pieces, seconds[purpose] - compute[phase])
    start = 0.0 if setting.ahead else _early_s(variant, counts, machine)
    outputs = sum(_copies_s(purpose, counts, machine) for purpose in ("outputs", "output_gradients"))
    parts = {
        Part.WEIGHTS: exposed["weights"],
        Part.START: max(start - exposed["weights"], 0.0),
        Part.OUTPUTS: outputs,
        Part.GRADIENTS: exposed["gradients"],
    }
    return parts, sum(seconds.values()) - sum(exposed.values())


def _ddp(counts: StepCounts, machine: Machine, setting: Setting, compute: Mapping[str, float]) -> dict[Part, float]:
    """Return the parts of DDP's communication: buffers before the forward, buckets beside the backward."""
    ends = _bucket_ends(counts, setting)
    last = counts.gradient_bytes[ends[-2] + 1 :] if len(ends) > 1 else counts.gradient_bytes
    total = _all_reduce_s(sum(counts.gradient_bytes), len(ends), machine)
    exposed = max(_all_reduce_s(sum(last), 1, machine), total - compute[Phase.BACKWARD])
    return {Part.WEIGHTS: _ring_s(counts.model.buffer_bytes, 1, machine), Part.GRADIENTS: exposed}


def _bucket_ends(counts: StepCounts, setting: Setting) -> list[int]:
    """Return the position of each bucket's last gradient: the first bucket has 1 MiB, as in torch's reducer."""
    ends, held, limit = list[int](), 0.0, min(1.0 * MIB, setting.bucket_bytes)
    for position, size in enumerate(counts.gradient_bytes):
        held += size
        if held >= limit:
            ends.append(position)
            held, limit = 0.0, setting.bucket_bytes
    return ends + [len(counts.gradient_bytes) - 1] * bool(held)


def _all_reduce_s(size_bytes: float, messages: int, machine: Machine) -> float:
    n = machine.devices
    return 2 * (n - 1) / n * _ring_s(size_bytes, 0, machine) + 2 * _ring_s(0, messages, machine)


def _ring_s(size_bytes: float, messages: float, machine: Machine) -> float:
    """Return the time of one round of NCCL's ring, by its own formula and constants for the protocol Simple."""
    ring = machine.ring
    if ring is None:
        return 0.0
    far = ring.machines - 1
    latency = ring.base.mid + (machine.devices - 1 - far) * ring.step.mid + far * ring.far_step.mid
    return size_bytes / ring.bus_bandwidth.mid + messages * latency


def _input_s(counts: StepCounts, machine: Machine) -> float:
    return _copies_s("input", counts, machine) + _copies_s("scatter", counts, machine)


def _sent_s(purpose: str, counts: StepCounts, machine: Machine, *, has_ring: bool) -> float:
    """Return the time of a broadcast or of a sum of gradients, hidden or not."""
    if not has_ring:
        return _copies_s(purpose, counts, machine)
    sizes = (value for name, value in counts.below("sent", purpose).items() if name.endswith("/bytes"))
    return _ring_s(max(sizes, default=0.0), _messages(purpose, counts), machine)


def _copies_s(purpose: str, counts: StepCounts, machine: Machine) -> float:
    """Return the time of the busiest link, and of the largest piece over the further hops of a chain."""
    load, hops, slowest = dict[str, float](), dict[int | None, int](), 0.0
    for (source, destination), sent in sorted(_pairs(purpose, counts), key=_outwards):
        links = [machine.kinds[machine.links[link]] for link in machine.routes[source, destination]]
        for link, kind in zip(machine.routes[source, destination], links, strict=True):
            own = sent["bytes"] / kind.bandwidth.mid + sent["messages"] * kind.latency.mid
            load[link] = load.get(link, 0.0) + own
        slowest = max(slowest, sent["largest"] / min(kind.bandwidth.mid for kind in links))
        hops[destination] = hops.get(source, 0) + 1
    return max(load.values(), default=0.0) + max(max(hops.values(), default=1) - 1, 0) * slowest


def _outwards(pair: tuple[tuple[int | None, int | None], Mapping[str, float]]) -> tuple[int, int]:
    """Sort a chain of weights by its sources upwards, and one of gradients downwards."""
    source, destination = (-1 if end is None else end for end in pair[0])
    return (source, destination) if source < destination else (-source, destination)


def _pairs(purpose: str, counts: StepCounts) -> Iterator[tuple[tuple[int | None, int | None], Mapping[str, float]]]:
    """Yield both ends, and the numbers that are sent between them."""
    found = dict[tuple[int | None, int | None], dict[str, float]]()
    for name, value in counts.below("sent", purpose).items():
        source, destination, number = name.split("/")
        ends = None if source == "host" else int(source), None if destination == "host" else int(destination)
        found.setdefault(ends, {})[number] = value
    yield from found.items()


def _messages(purpose: str, counts: StepCounts) -> float:
    """Return how many messages the pair with most of them has."""
    return max((sent["messages"] for _, sent in _pairs(purpose, counts)), default=0.0)


# Host


def host_s(variant: VariantId, counts: StepCounts, machine: Machine, setting: Setting) -> float:
    """Return the time of the host's calls: threads of a forward share the interpreter, those of a backward do not."""
    cost = {name.value: quantity.mid * machine.host.factor.mid for name, quantity in machine.host.costs.items()}
    if variant.values.get("graphs"):
        return _graphs_s(counts, cost)
    step = cost[HostCost.STEP] + cost[HostCost.BACKWARD_START]
    step += counts.model.parameters * cost[HostCost.OPTIMISER_PARAMETER] + _replicas_s(variant, counts, cost)
    if variant.name is VariantName.DDP:
        step += len(_bucket_ends(counts, setting)) * cost[HostCost.COLLECTIVE]
    threads = _threads(counts, Phase.FORWARD)
    lanes = [calls for thread, calls in threads.items() if thread != MAIN]
    native = [calls.get(HostCost.FORWARD_NATIVE, 0.0) * cost[HostCost.FORWARD_NATIVE] for calls in lanes]
    forward = _cost_s(_main_calls(variant, threads.get(MAIN, {})), cost) + sum(_cost_s(calls, cost) for calls in lanes)
    if variant.values.get("dispatch") == "interleaved":
        forward += counts.numbers["turns"] * 2 * cost[HostCost.LOCK_HANDOVER]
    elif lanes:
        forward += cost[HostCost.THREAD_START] + max(native) - sum(native)
    backward = _threads(counts, Phase.BACKWARD)
    engine = [_cost_s(calls, cost) for thread, calls in backward.items() if thread != MAIN]
    return step + forward + _cost_s(backward.get(MAIN, {}), cost) + max(engine, default=0.0)


def _graphs_s(counts: StepCounts, cost: Mapping[str, float]) -> float:
    """Return the host's time if each lane's forward and backward is one launch with a cost for each node."""
    nodes = {phase: counts.below("work", counts.devices - 1, phase).get("kernels", 0.0) for phase in Phase}
    launch = cost[HostCost.FORWARD_PYTHON] + cost[HostCost.GRAPH_LAUNCH]
    forward = counts.devices * (launch + nodes[Phase.FORWARD] * cost[HostCost.GRAPH_NODE])
    backward = counts.devices * launch + nodes[Phase.BACKWARD] * cost[HostCost.GRAPH_NODE]
    sums = {
        name: number
        for name, number in _threads(counts, Phase.BACKWARD).get(1 + counts.devices, {}).items()
        if name not in (HostCost.BACKWARD, HostCost.VIEW)
    }
    optimiser = counts.model.parameters * cost[HostCost.OPTIMISER_PARAMETER]
    step = cost[HostCost.STEP] + cost[HostCost.BACKWARD_START] + optimiser
    return step + _cost_s(_prelude(counts), cost) + forward + backward + _cost_s(sums, cost)


def _early_s(variant: VariantId, counts: StepCounts, machine: Machine) -> float:
    """Return how long the last device waits for the host at the beginning of the step."""
    cost = {name.value: quantity.mid * machine.host.factor.mid for name, quantity in machine.host.costs.items()}
    if variant.values.get("graphs"):
        launch = cost[HostCost.FORWARD_PYTHON] + cost[HostCost.GRAPH_LAUNCH]
        nodes = counts.below("work", counts.devices - 1, Phase.FORWARD).get("kernels", 0.0)
        return _cost_s(_prelude(counts), cost) + counts.devices * (launch + nodes * cost[HostCost.GRAPH_NODE])
    return _cost_s(_main_calls(variant, counts.below("early")), cost) + _replicas_s(variant, counts, cost)


def _prelude(counts: StepCounts) -> dict[str, float]:
    """Return the calls before the lanes without those that a graph's launch replaces."""
    replaced = (HostCost.FORWARD_PYTHON, HostCost.FORWARD_NATIVE, HostCost.VIEW, HostCost.HANDLE_LOOKUP)
    return {name: number for name, number in counts.below("early").items() if name not in replaced}


def _replicas_s(variant: VariantId, counts: StepCounts, cost: Mapping[str, float]) -> float:
    """Return the host's time for new replicas in each step."""
    return counts.model.modules * (counts.devices - 1) * cost[HostCost.REPLICATE_MODULE] * _has_new_replicas(variant)


def _has_new_replicas(variant: VariantId) -> bool:
    is_stock = variant.name in (VariantName.TORCH_DP, VariantName.NAIVE)
    return is_stock or not variant.values.get("cache_replicas", True)


def _main_calls(variant: VariantId, calls: Mapping[str, float]) -> dict[str, float]:
    """Return the calls of the main thread's forward. The cost of a new replica has its views."""
    return {name: number for name, number in calls.items() if name != HostCost.VIEW or not _has_new_replicas(variant)}


def _threads(counts: StepCounts, phase: Phase) -> dict[int, dict[str, float]]:
    found = dict[int, dict[str, float]]()
    for name, number in counts.below("host", phase).items():
        thread, cost = name.split("/")
        found.setdefault(int(thread), {})[cost] = number
    return found


def _cost_s(calls: Mapping[str, float], cost: Mapping[str, float]) -> float:
    return sum(number * cost[name] for name, number in calls.items())
