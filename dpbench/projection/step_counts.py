"""What one step does, as numbers that are affine in the batch: from recordings at two or three small batches. Pure.

A number has a name of words with slashes::

    work/0/forward/flops/convolution     floating-point operations of device 0, by phase and kind of operator
    work/0/forward/bytes/elementwise     bytes that its operators read and write
    work/0/forward/kernels               operators that it runs; in the optimiser, kinds of them
    sent/weights/0/1/bytes               bytes over one pair of devices, by purpose; also messages and largest
    host/forward/0/view                  calls of one thread of the host, by phase and kind of call
    early/view                           calls of thread 0 before the last device can begin
    memory/0                             the most bytes that device 0 holds
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from dpbench.projection.machine import FLOP_KINDS, HostCost, Kind
from dpbench.records.count_record import Phase
from dpbench.records.recording import ON_THREADS, Copy, GradientReady, HostCall, Mark, ModelFacts, Operator, Recording

MAIN = 0
"""The host's thread that takes the step."""
HOME = 0
"""The device of the base model."""
Ends = tuple[int | None, int | None]
"""A source and a destination. None stands for the host."""
_RELATIVE = 1e-9
_NAMES = {
    Kind.CONVOLUTION: ("convolution",),
    Kind.BATCHED_MATMUL: ("bmm",),
    Kind.MATMUL: ("mm", "addmv"),
    Kind.NORM: ("norm",),
    Kind.SOFTMAX: ("softmax",),
    Kind.INDEX: ("embedding", "index", "gather", "scatter", "nll_loss"),
    Kind.MOVE: ("copy", "cat", "clone"),
    Kind.REDUCTION: ("pool", "sum", "mean"),
}


@dataclass(frozen=True)
class StepCounts:
    """The numbers of one step at one global batch.

    `gradient_bytes` are in the order in which the gradients are ready, if they were recorded.
    """

    devices: int
    batch: int
    numbers: Mapping[str, float]
    model: ModelFacts
    gradient_bytes: tuple[int, ...] = ()

    def below(self, *words: object) -> dict[str, float]:
        """The numbers whose names begin with these words, by the rest of their names."""
        prefix = "".join(f"{word}/" for word in words)
        return {name.removeprefix(prefix): value for name, value in self.numbers.items() if name.startswith(prefix)}

    def sent(self, purpose: str) -> dict[Ends, dict[str, float]]:
        """The bytes, the messages and the largest one of them between each pair of ends."""
        pairs = dict[Ends, dict[str, float]]()
        for name, value in self.below("sent", purpose).items():
            source, destination, number = name.split("/")
            ends = None if source == "host" else int(source), None if destination == "host" else int(destination)
            pairs.setdefault(ends, {})[number] = value
        return pairs

    def calls(self, phase: Phase) -> dict[int, dict[str, float]]:
        """The number of each kind of call, by thread of the host."""
        threads = dict[int, dict[str, float]]()
        for name, value in self.below("host", phase).items():
            thread, cost = name.split("/")
            threads.setdefault(int(thread), {})[cost] = value
        return threads


@dataclass(frozen=True)
class AffineCounts:
    """The counts of a step at any batch. `not_affine` names numbers that are not on the line through two others."""

    first: StepCounts
    last: StepCounts
    not_affine: tuple[str, ...] = ()

    def at(self, batch: int) -> StepCounts:
        share = (batch - self.first.batch) / (self.last.batch - self.first.batch)
        return StepCounts(
            self.first.devices, batch, _line(self.first, self.last, share), self.first.model, self.first.gradient_bytes
        )

    def text(self) -> str:
        return _JSON.dump_json(self).decode()

    @staticmethod
    def parse(text: str) -> "AffineCounts":
        """Return what `text` wrote. Raise ValueError for any other text."""
        return _JSON.validate_json(text)


_JSON = TypeAdapter(AffineCounts)


def merge(counts: Sequence[StepCounts]) -> AffineCounts:
    """Return the counts at any batch, from those at two or three batches. Raise ValueError for fewer or more."""
    if len(counts) not in (2, 3):
        raise ValueError(f"counts: {len(counts)} batches; allowed: 2 or 3")
    first, *between, last = sorted(counts, key=lambda step: step.batch)
    off = set[str]()
    for other in between:
        line = _line(first, last, (other.batch - first.batch) / (last.batch - first.batch))
        for name in line.keys() | other.numbers.keys():
            value = other.numbers.get(name, 0.0)
            is_exact = not name.startswith("memory/")  # blocks are rounded up
            if is_exact and abs(value - line.get(name, 0.0)) > _RELATIVE * max(abs(value), 1.0):
                off.add(name)
    return AffineCounts(first, last, tuple(sorted(off)))


def kind_of(operator: str) -> Kind:
    """The kind of an operator such as ``aten.addmm.default``. One that is not known is element-wise."""
    name = operator.removeprefix("aten.").partition(".")[0]
    kinds = (kind for kind, parts in _NAMES.items() if any(part in name for part in parts))
    return next(kinds, Kind.ELEMENTWISE)


def count_step(recording: Recording, batch: int, peak_bytes: Mapping[int, int] | None = None) -> StepCounts:
    """Raise ValueError if the recording lacks the facts about its model."""
    if recording.model is None:
        raise ValueError("the recording lacks the facts about its model")
    numbers: Counter[str] = Counter({f"memory/{device}": size for device, size in (peak_bytes or {}).items()})
    largest: Counter[str] = Counter()
    seen, phase = set[tuple[int, str]](), Phase.FORWARD
    for event in recording.events:
        if isinstance(event, Mark):
            phase = Phase(event.name)
        elif isinstance(event, Operator) and event.is_launched:
            is_new = phase != Phase.OPTIMISER or (event.device, event.name) not in seen
            seen.add((event.device, event.name))
            numbers.update(_work(event, phase, is_new=is_new))
        elif isinstance(event, Copy):
            name = f"sent/{_purpose(event, phase)}/{_end(event.source)}/{_end(event.destination)}"
            numbers.update({f"{name}/bytes": event.size_bytes, f"{name}/messages": 1})
            largest[f"{name}/largest"] = max(largest[f"{name}/largest"], event.size_bytes)
        if isinstance(event, ON_THREADS):
            numbers.update({f"host/{phase}/{event.thread}/{cost}": 1 for cost in _costs(event, phase)})
    numbers.update({f"early/{cost}": number for cost, number in _early(recording).items()})
    ready = tuple(event.size_bytes for event in recording.events if isinstance(event, GradientReady))
    return StepCounts(recording.devices, batch, {**numbers, **largest}, recording.model, ready)


def bytes_by_link(counts: StepCounts) -> dict[str, int]:
    """The bytes over each link, such as ``sim:0->sim:1``, if rings carry the weights and the gradients.

    A ring visits the devices in their order, and loads each hop once.
    """
    by_link = Counter[str]()
    for name, size in counts.below("sent").items():
        purpose, source, destination, number = name.split("/")
        if number != "bytes" or purpose == "input":
            continue
        if purpose == "weights":
            source = str(int(destination) - 1)
        elif purpose == "gradients":
            destination = str(int(source) - 1)
        by_link[f"sim:{source}->sim:{destination}"] += int(size)
    return dict(sorted(by_link.items()))


def _work(event: Operator, phase: Phase, *, is_new: bool) -> dict[str, int]:
    """The optimiser has one kernel for all operators of a name."""
    kind, place = kind_of(event.name), f"work/{event.device}/{phase}"
    work = {f"{place}/bytes/{kind}": event.read_bytes + event.written_bytes, f"{place}/kernels": int(is_new)}
    if event.flops and kind in FLOP_KINDS:
        work[f"{place}/flops/{kind}"] = event.flops
    return work


def _purpose(copy: Copy, phase: Phase) -> str:
    """Weights never go to the base's device, and sums of gradients never leave it."""
    if copy.source is None or copy.destination is None:
        return "input"
    if phase == Phase.FORWARD:
        return "outputs" if copy.destination == HOME else "weights"
    return "output_gradients" if copy.source == HOME else "gradients"


def _costs(event: Any, phase: Phase) -> tuple[str, ...]:
    match event:
        case HostCall():  # to empty a cache takes at least a wait
            return (getattr(HostCost, event.name.name, HostCost.HOST_WAIT),)
        case Copy():
            return (HostCost.COPY,)
        case Operator() if not event.is_launched:
            return (HostCost.VIEW,)
        case Operator() if phase == Phase.BACKWARD:
            return (HostCost.BACKWARD,)
        case Operator():
            return (HostCost.FORWARD_PYTHON, HostCost.FORWARD_NATIVE)
    return ()


def _early(recording: Recording) -> Counter[str]:
    """The calls of the main thread before the last device can begin its first matrix product.

    The lanes' own threads begin together, with the first product of all.
    """
    calls, at_begin = Counter[str](), dict[int, Counter[str]]()
    for event in recording.events:
        if isinstance(event, Mark) and event.name != Phase.FORWARD:
            break
        if isinstance(event, Operator) and event.flops and event.device not in at_begin:
            thread_calls = event.thread == MAIN or not at_begin
            at_begin[event.device] = Counter(calls) if thread_calls else next(iter(at_begin.values()))
        if isinstance(event, ON_THREADS) and event.thread == MAIN:
            calls.update(_costs(event, Phase.FORWARD))
    return max(at_begin.values(), key=lambda calls: calls.total(), default=Counter())


def _end(device: int | None) -> str:
    return "host" if device is None else str(device)


def _line(first: StepCounts, last: StepCounts, share: float) -> dict[str, float]:
    """The numbers on the line through two batches."""
    line = dict[str, float]()
    for name in sorted(first.numbers.keys() | last.numbers.keys()):
        begin, end = first.numbers.get(name, 0.0), last.numbers.get(name, 0.0)
        line[name] = max(begin + (end - begin) * share, 0.0)
    return line
