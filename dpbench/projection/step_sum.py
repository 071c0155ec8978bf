"""The time of a step as a sum that a person can check. Pure. MODEL.md explains the parts.

step   = max(host, device)
host   = calls of the step x the cost of each
device = input + start + computation of the largest share + what communication cannot hide
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from dpbench.cases.variants import VariantId, VariantName
from dpbench.projection.machine import FLOP_KINDS, Format, HostCost, Kind, Machine
from dpbench.projection.step_counts import HOME, MAIN, Ends, StepCounts
from dpbench.records.count_record import Phase

FILE = Path(__file__).with_name("fitted.toml")
"""Written by ``python -m benchmarks.instruments.projection.validate``."""


@dataclass(frozen=True)
class Fitted:
    """Constants from published steps.

    `speed_float32` and `speed_tf32` multiply the time that peaks and efficiencies give for one device, by format of its
    products. `beside` is the share by which computation is slower while collectives run beside it. An interval is a
    time over and times a factor: `step_error` for a step, `ratio_error` for a step over that of one device.
    """

    speed_float32: float = 1.0
    speed_tf32: float = 1.0
    beside: float = 0.0
    step_error: float = 1.0
    ratio_error: float = 1.0

    def error_of_ratio(self, schemes: int) -> float:
        """The factor for a ratio of steps of which so many are of a scheme for several devices.

        The errors of two schemes are taken as independent: too few published tables have two.
        """
        return float(self.ratio_error ** (schemes**0.5))


UNFITTED = Fitted()


@cache
def fitted() -> Fitted:
    return Fitted(**tomllib.loads(FILE.read_text()))


MIB = 1024 * 1024
_AUTOCAST = frozenset({Kind.CONVOLUTION, Kind.MATMUL, Kind.BATCHED_MATMUL, Kind.NORM, Kind.ELEMENTWISE, Kind.REDUCTION})
"""Their tensors have half as many bytes under autocast."""
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
    """Times are in seconds. `parts` add up to `device_s`, and `hidden_s` is communication that costs nothing.

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
        """None if memory was not counted."""
        return None if self.memory_bytes is None else self.memory_bytes <= _FREE_SHARE * self.device_memory_bytes


@dataclass(frozen=True)
class Setting:
    """How a step is taken, and the constants from published steps.

    `math` is default, float32, tf32 or bf16. With `ahead` the host begins a step before the devices end the last one.
    `one_device_s` is the measured step of one device; without it, peaks and efficiencies give it. `bucket_bytes` is
    DDP's.
    """

    math: str = "default"
    ahead: bool = False
    one_device_s: float | None = None
    bucket_bytes: float = 25 * MIB
    loader_items_per_s: float | None = None
    fitted: Fitted = UNFITTED


def sum_step(variant: VariantId, counts: StepCounts, single: StepCounts, machine: Machine, setting: Setting) -> StepSum:
    """`single` has the counts of one device with its share of the batch; `counts` are `single` itself for `ddp`."""
    return _Step(variant, counts, single, machine, setting).sum()


def compute_s(counts: StepCounts, device: int, machine: Machine, math: str) -> dict[str, float]:
    """The time of a device's operators by phase, from peaks and efficiencies."""
    by_phase = {}
    for phase in Phase:
        place = ("work", device, phase)
        half = math == "bf16" and "bfloat16" in machine.device.peak and phase != Phase.OPTIMISER
        seconds = counts.below(*place).get("kernels", 0.0) * machine.device.gap.mid
        for kind, number in counts.below(*place, "bytes").items():
            speed = machine.device.bandwidth.mid * machine.device.efficiency.byte[Kind(kind)].mid
            seconds += number / (2 if half and kind in _AUTOCAST else 1) / speed
        for kind, number in counts.below(*place, "flops").items():
            peak = machine.device.peak[_format(machine, math, Kind(kind))].mid
            seconds += number / (peak * machine.device.efficiency.flop[Kind(kind)].mid)
        if half and phase == Phase.FORWARD:
            seconds += _CAST_BYTES * counts.model.parameter_bytes / 4 / _moved_per_s(machine)
        by_phase[phase.value] = seconds
    return by_phase


def _moved_per_s(machine: Machine) -> float:
    return machine.device.bandwidth.mid * machine.device.efficiency.byte[Kind.MOVE].mid


def has_tensor_format(machine: Machine, math: str) -> bool:
    """Whether some products are computed in another format than float32."""
    return any(_format(machine, math, kind) != "float32" for kind in FLOP_KINDS)


def _format(machine: Machine, math: str, kind: Kind) -> Format:
    peaks = machine.device.peak
    if math == "bf16" and "bfloat16" in peaks:
        return "bfloat16"
    wants_tf32 = math in ("tf32", "bf16") or (math == "default" and kind is Kind.CONVOLUTION)
    return "tf32" if wants_tf32 and "tf32" in peaks else "float32"


class _Step:
    def __init__(
        self, variant: VariantId, counts: StepCounts, single: StepCounts, machine: Machine, setting: Setting
    ) -> None:
        self._variant, self._counts, self._single = variant, counts, single
        self._machine, self._setting = machine, setting
        is_stock = variant.name in (VariantName.TORCH_DP, VariantName.NAIVE)
        self._has_new_replicas = is_stock or not variant.values.get("cache_replicas", True)
        factor = machine.host.factor.mid
        self._cost = {name.value: quantity.mid * factor for name, quantity in machine.host.costs.items()}

    def sum(self) -> StepSum:
        variant, counts, machine, setting = self._variant, self._counts, self._machine, self._setting
        is_ddp, is_single = variant.name is VariantName.DDP, variant.name is VariantName.SINGLE
        speed = self._speed()
        shares = [compute_s(counts, device, machine, setting.math) for device in range(counts.devices)]
        largest = max(shares, key=lambda share: sum(share.values()))
        compute = {phase: seconds * speed for phase, seconds in largest.items()}
        parts = {Part.INPUT: self._input_s(counts), Part.COMPUTE: sum(compute.values())}
        hidden = 0.0
        if is_ddp:
            # each gradient is copied into its bucket and out of it, reading and writing
            parts[Part.COMPUTE] += speed * (4 * sum(counts.gradient_bytes) / _moved_per_s(machine))
            scheme_parts, hidden = self._ddp(compute)
            parts |= scheme_parts
        elif not is_single:
            scheme_parts, hidden = self._lanes(compute)
            parts |= scheme_parts
        if is_ddp or variant.takes_nccl_route:
            parts[Part.BESIDE] = setting.fitted.beside * parts[Part.COMPUTE]
        devices = 1 if is_single else machine.devices
        batch, items_per_s = self._single.batch * devices, setting.loader_items_per_s
        memory = max(counts.below("memory").values(), default=None)
        if memory is not None and is_ddp:
            memory += self._single.model.parameter_bytes  # the buckets
        return StepSum(
            devices,
            batch,
            {part: seconds for part, seconds in parts.items() if seconds > 0},
            self._graphs_s() if variant.values.get("graphs") else self._host_s(),
            max(hidden, 0.0),
            0.0 if items_per_s is None else batch / items_per_s,
            memory,
            machine.device.memory.mid,
        )

    def _speed(self) -> float:
        """What multiplies the times of operators: from the measured step of one device, or as fitted."""
        setting, machine = self._setting, self._machine
        if setting.one_device_s is None:
            fitted, factor = setting.fitted, machine.device.factor.mid
            return factor * (fitted.speed_tf32 if has_tensor_format(machine, setting.math) else fitted.speed_float32)
        computed = sum(compute_s(self._single, HOME, machine, setting.math).values())
        return max(setting.one_device_s - self._input_s(self._single), 0.0) / computed

    # Communication

    def _lanes(self, compute: Mapping[str, float]) -> tuple[dict[Part, float], float]:
        """The parts of a scheme with one process, and the communication that is hidden."""
        values = self._variant.values
        seconds = {purpose: self._sent_s(purpose) for purpose in ("weights", "gradients")}
        exposed = dict(seconds)
        for purpose, phase, option in (
            ("weights", Phase.FORWARD, "overlap_broadcast"),
            ("gradients", Phase.BACKWARD, "overlap_reduce"),
        ):
            if self._variant.name is VariantName.TUNED and values.get(option, True):
                pieces = max(self._messages(purpose), 1)
                exposed[purpose] = max(seconds[purpose] / pieces, seconds[purpose] - compute[phase])
        start = 0.0 if self._setting.ahead else self._early_s()
        parts = {
            Part.WEIGHTS: exposed["weights"],
            Part.START: max(start - exposed["weights"], 0.0),
            Part.OUTPUTS: sum(self._copies_s(purpose, self._counts) for purpose in ("outputs", "output_gradients")),
            Part.GRADIENTS: exposed["gradients"],
        }
        return parts, sum(seconds.values()) - sum(exposed.values())

    def _ddp(self, compute: Mapping[str, float]) -> tuple[dict[Part, float], float]:
        """The same for DDP: buffers before the forward, buckets beside the backward."""
        ends, sizes = self._bucket_ends(), self._counts.gradient_bytes
        last = sizes[ends[-2] + 1 :] if len(ends) > 1 else sizes
        total = self._all_reduce_s(sum(sizes), len(ends))
        exposed = max(self._all_reduce_s(sum(last), 1), total - compute[Phase.BACKWARD])
        buffers = self._ring_s(self._counts.model.buffer_bytes, 1)
        return {Part.WEIGHTS: buffers, Part.GRADIENTS: exposed}, total - exposed

    def _bucket_ends(self) -> list[int]:
        """The position of each bucket's last gradient: the first bucket has 1 MiB, as in torch's reducer."""
        sizes, whole = self._counts.gradient_bytes, self._setting.bucket_bytes
        ends, held, limit = list[int](), 0.0, min(1.0 * MIB, whole)
        for position, size in enumerate(sizes):
            held += size
            if held >= limit:
                ends.append(position)
                held, limit = 0.0, whole
        return ends + [len(sizes) - 1] * bool(held)

    def _all_reduce_s(self, size_bytes: float, messages: int) -> float:
        n = self._machine.devices
        return 2 * (n - 1) / n * self._ring_s(size_bytes, 0) + 2 * self._ring_s(0, messages)

    def _ring_s(self, size_bytes: float, messages: float) -> float:
        """One round of NCCL's ring, by its own formula and constants for the protocol Simple."""
        ring = self._machine.ring
        if ring is None:
            return 0.0
        far = ring.machines - 1
        latency = ring.base.mid + (self._machine.devices - 1 - far) * ring.step.mid + far * ring.far_step.mid
        return size_bytes / ring.bus_bandwidth.mid + messages * latency

    def _input_s(self, counts: StepCounts) -> float:
        return self._copies_s("input", counts) + self._copies_s("scatter", counts)

    def _sent_s(self, purpose: str) -> float:
        """The time of a broadcast or of a sum of gradients, hidden or not."""
        ring, is_torch = self._machine.ring, self._variant.name is VariantName.TORCH_DP
        if ring is not None and (self._variant.takes_nccl_route or (is_torch and ring.hop == "nvlink")):
            sent = self._counts.sent(purpose).values()
            return self._ring_s(max((numbers["bytes"] for numbers in sent), default=0.0), self._messages(purpose))
        return self._copies_s(purpose, self._counts)

    def _copies_s(self, purpose: str, counts: StepCounts) -> float:
        """The time of the busiest link, and of the largest piece over the further hops of a chain."""
        load, hops, slowest = dict[str, float](), dict[int | None, int](), 0.0
        for ends, sent in sorted(counts.sent(purpose).items(), key=_outwards):
            links = {name: self._machine.links[name] for name in self._machine.routes[ends]}
            for name, link in links.items():
                copies_s = sent["bytes"] / link.bandwidth.mid + sent["messages"] * link.latency.mid
                load[name] = load.get(name, 0.0) + copies_s
            slowest = max(slowest, sent["largest"] / min(link.bandwidth.mid for link in links.values()))
            hops[ends[1]] = hops.get(ends[0], 0) + 1
        return max(load.values(), default=0.0) + max(max(hops.values(), default=1) - 1, 0) * slowest

    def _messages(self, purpose: str) -> float:
        """The messages of the pair with most."""
        return max((sent["messages"] for sent in self._counts.sent(purpose).values()), default=0.0)

    # Host

    def _host_s(self) -> float:
        """The host's calls: threads share the interpreter in the forward alone."""
        counts, cost = self._counts, self._cost
        step = cost[HostCost.STEP] + cost[HostCost.BACKWARD_START]
        step += counts.model.parameters * cost[HostCost.OPTIMISER_PARAMETER] + self._replicas_s()
        if self._variant.name is VariantName.DDP:
            step += len(self._bucket_ends()) * cost[HostCost.COLLECTIVE]
        threads = counts.calls(Phase.FORWARD)
        lanes = [calls for thread, calls in threads.items() if thread != MAIN]
        native = [calls.get(HostCost.FORWARD_NATIVE, 0.0) * cost[HostCost.FORWARD_NATIVE] for calls in lanes]
        forward = self._cost_s(self._main_calls(threads.get(MAIN, {}))) + sum(map(self._cost_s, lanes))
        if lanes:
            forward += cost[HostCost.THREAD_START] + max(native) - sum(native)
        backward = counts.calls(Phase.BACKWARD)
        engine = [self._cost_s(calls) for thread, calls in backward.items() if thread != MAIN]
        return step + forward + self._cost_s(backward.get(MAIN, {})) + max(engine, default=0.0)

    def _graphs_s(self) -> float:
        """The host's time if each lane's forward and backward is one launch with a cost for each node.

        The wrapper makes a view for each gradient of the base.
        """
        counts, cost = self._counts, self._cost
        views = counts.model.parameters * cost[HostCost.VIEW]
        backward = counts.devices * self._launch_s() + self._nodes(Phase.BACKWARD) * cost[HostCost.GRAPH_NODE]
        engine = counts.calls(Phase.BACKWARD).get(1 + counts.devices, {})
        sums = {name: number for name, number in engine.items() if name not in (HostCost.BACKWARD, HostCost.VIEW)}
        optimiser = counts.model.parameters * cost[HostCost.OPTIMISER_PARAMETER]
        step = cost[HostCost.STEP] + cost[HostCost.BACKWARD_START] + optimiser
        return step + self._early_s() + backward + views + self._cost_s(sums)

    def _early_s(self) -> float:
        """How long the last device waits for the host at the beginning of the step."""
        early, cost = self._counts.below("early"), self._cost
        if not self._variant.values.get("graphs"):
            return self._cost_s(self._main_calls(early)) + self._replicas_s()
        # the launch of a graph replaces these calls
        replaced = (HostCost.FORWARD_PYTHON, HostCost.FORWARD_NATIVE, HostCost.VIEW, HostCost.HANDLE_LOOKUP)
        prelude = {name: number for name, number in early.items() if name not in replaced}
        nodes = self._nodes(Phase.FORWARD) * cost[HostCost.GRAPH_NODE]
        return self._cost_s(prelude) + self._counts.devices * (self._launch_s() + nodes)

    def _launch_s(self) -> float:
        return self._cost[HostCost.FORWARD_PYTHON] + self._cost[HostCost.GRAPH_LAUNCH]

    def _nodes(self, phase: Phase) -> float:
        return self._counts.below("work", self._counts.devices - 1, phase).get("kernels", 0.0)

    def _replicas_s(self) -> float:
        replicas = self._counts.model.modules * (self._counts.devices - 1) * self._has_new_replicas
        return replicas * self._cost[HostCost.REPLICATE_MODULE]

    def _main_calls(self, calls: Mapping[str, float]) -> dict[str, float]:
        """The cost of a new replica has its views."""
        return {name: n for name, n in calls.items() if name != HostCost.VIEW or not self._has_new_replicas}

    def _cost_s(self, calls: Mapping[str, float]) -> float:
        return sum(number * self._cost[name] for name, number in calls.items())


def _outwards(pair: tuple[Ends, Mapping[str, float]]) -> tuple[int, int]:
    """Sort a chain of weights by its sources upwards, and one of gradients downwards."""
    source, destination = (-1 if end is None else end for end in pair[0])
    return (source, destination) if source < destination else (-source, destination)
