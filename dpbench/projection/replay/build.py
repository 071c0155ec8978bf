"""From a recorded step to tasks on a described machine. Pure.

Threads of the host:

- ``main`` takes the step. The lanes' own threads, if the variant has them, start together. ``main`` may run a lane too,
  and goes on when all lanes have ended. When that was recorded is chance, so `together` finds both ends.
- While several threads run Python, an operator's Python part holds the interpreter lock and its native part does not.
- Interleaved lanes run one at a time, in the recorded order: all in ``main``, with a `BatonPass` between them.
- The Python around a launch of a graph holds the lock, in the backward too; the launch does not.
- In the backward torch's engine has a thread for each device. They start together, and ``main`` waits for all of them.
  A node on one device cannot be issued before the nodes whose results it reads.

A device's streams run in order; between them there are only the recorded waits. They share the device's compute.
Host calls that launch nothing are added to the next task of their thread.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dpbench.projection.described.machine import FLOP_KINDS, HostCost, Kind, Machine
from dpbench.projection.replay.events import MAIN, AnyEvent, BatonPass, Collective, GraphLaunch, together
from dpbench.projection.replay.rates import name_of
from dpbench.projection.replay.tasks import LOCK, Rate, Role, Task, Tasks
from dpbench.records.counts import Phase
from dpbench.records.recording import Copy, HostCall, HostWait, Mark, Operator, Wait

_PARTS_OF_NAMES = {
    Kind.CONVOLUTION: ("convolution",),
    Kind.BATCHED_MATMUL: ("bmm",),
    Kind.MATMUL: ("mm", "addmv"),
    Kind.NORM: ("norm",),
    Kind.SOFTMAX: ("softmax",),
    Kind.INDEX: ("embedding", "index", "gather", "scatter", "nll_loss"),
    Kind.MOVE: ("copy", "cat", "clone"),
    Kind.REDUCTION: ("pool", "sum", "mean"),
}


def kind_of(operator: str) -> Kind:
    """Return the kind of an operator such as ``aten.addmm.default``: the first kind with a part of its name.

    An operator that is not known moves bytes element by element.
    """
    name = operator.removeprefix("aten.").partition(".")[0]
    kinds = (kind for kind, parts in _PARTS_OF_NAMES.items() if any(part in name for part in parts))
    return next(kinds, Kind.ELEMENTWISE)


@dataclass(frozen=True)
class Facts:
    """What a recording's events do not show: the numbers of modules and parameters, and the device of each stream.

    `replicas` is the number of new replicas of all modules that each step makes on the host. With `has_foreach`, the
    optimizer has one kernel for many parameters.
    """

    modules: int
    parameters: int
    replicas: int = 0
    has_foreach: bool = True
    streams: Mapping[int, int] = field(default_factory=dict)


@dataclass
class _Thread:
    """`last` is its last task, `pending` are costs of calls that launched nothing, `waits` are tasks to await."""

    last: int | None = None
    pending: Counter[Rate] = field(default_factory=Counter)
    waits: set[int] = field(default_factory=set)


def build(events: Sequence[AnyEvent], machine: Machine, facts: Facts, steps: int = 1) -> Tasks:
    """Return the tasks of so many equal steps, one after the other."""
    builder = _Builder(machine, facts)
    for _ in range(steps):
        builder.step(events)
    return builder.tasks


class _Builder:
    def __init__(self, machine: Machine, facts: Facts) -> None:
        self.tasks = Tasks()
        self._machine, self._facts = machine, facts
        self._main = _Thread()
        self._last_of_stream: dict[int, int] = {}
        self._reset()

    def _reset(self) -> None:
        self._threads: dict[int, _Thread] = {MAIN: self._main}
        self._awaited: dict[int, set[int]] = {}
        self._done: dict[int, int] = {}
        self._issued: dict[int, tuple[int, int]] = {}
        self._foreach: dict[str, int] = {}
        self._begin_of_lanes: int | None = None
        self._phase = ""
        self._is_replicated, self._is_together = False, False

    def step(self, events: Sequence[AnyEvent]) -> None:
        self._reset()
        span = together(events)
        for i, event in enumerate(events):
            if span and i == span.start:
                self._start_lanes()
            elif span and i == span.stop:
                self._finish_threads()
            match event:
                case Mark():
                    self._begin(event.name)
                case Operator():
                    self._operator(event)
                case Copy():
                    self._copy(event)
                case Collective():
                    self._collective(event)
                case GraphLaunch():
                    self._graph(event)
                case Wait():
                    self._awaited.setdefault(event.stream, set()).update(self._known(event.after))
                case HostWait():
                    self._thread(event.thread).waits.update(self._known(event.after))
                case HostCall():
                    self._thread(event.thread).pending[_host(event.name.value)] += 1
                case BatonPass():
                    self._main.pending[_host(HostCost.LOCK_HANDOVER)] += 2
        self._finish_threads()
        self.tasks.step_ends.append(len(self.tasks))

    # Threads

    def _thread(self, number: int) -> _Thread:
        found = self._threads.get(number)
        if found is None:
            found = self._threads[number] = _Thread()
            begin = self._begin_of_lanes if self._is_together else self._main.last
            if begin is not None:
                found.waits.add(begin)
            if self._is_together:
                found.pending[_host(HostCost.THREAD_START)] += 1
        return found

    def _start_lanes(self) -> None:
        """From here on the lanes' threads run, beside the main thread."""
        self._replicate()
        if self._main.pending:
            self._on_host(MAIN, "calls", Counter())
        self._is_together, self._begin_of_lanes = True, self._main.last

    def _replicate(self) -> None:
        """Before the first lane computes, let the main thread make the replicas."""
        if not self._is_replicated and self._facts.replicas:
            self._is_replicated = True
            cost = {_host(HostCost.REPLICATE_MODULE): self._facts.modules * self._facts.replicas}
            self._on_host(MAIN, "replicate", Counter(cost))

    def _finish_threads(self) -> None:
        """Let the main thread wait for all others, and forget them."""
        for number, thread in self._threads.items():
            if number != MAIN:
                if thread.pending:
                    self._on_host(number, "calls", Counter())
                if thread.last is not None:
                    self._main.waits.add(thread.last)
        self._threads, self._is_together = {MAIN: self._main}, False

    def _begin(self, name: str) -> None:
        if self._phase == Phase.BACKWARD:
            self._finish_threads()
        self._phase = name
        if name == Phase.FORWARD:
            self._on_host(MAIN, "begin of the step", Counter({_host(HostCost.STEP): 1}))
        elif name == Phase.BACKWARD:
            self._on_host(MAIN, "begin of the backward", Counter({_host(HostCost.BACKWARD_START): 1}))
        else:
            cost = Counter({_host(HostCost.OPTIMISER_PARAMETER): self._facts.parameters})
            self._on_host(MAIN, "begin of the optimiser", cost)

    def _on_host(
        self, number: int, name: str, cost: Counter[Rate], before: Iterable[int] = (), *, is_locked: bool = False
    ) -> int:
        """Add a task of a thread, and return its index."""
        thread = self._thread(number)
        waits = {*before, *thread.waits} | ({thread.last} if thread.last is not None else set())
        cost = cost + thread.pending
        thread.pending, thread.waits = Counter(), set()
        resources = (f"thread {number}",)
        native = cost.pop(_host(HostCost.FORWARD_NATIVE), 0)
        if self._is_together or is_locked:
            lock = Task(Role.HOST, name, (*resources, LOCK), dict(cost), tuple(waits), phase=self._phase)
            thread.last = self.tasks.add(lock)
            cost, waits = Counter(), {thread.last}
        if native:
            cost[_host(HostCost.FORWARD_NATIVE)] = native
        if cost or thread.last is None or waits != {thread.last}:
            task = Task(Role.HOST, name, resources, dict(cost), tuple(waits), phase=self._phase)
            thread.last = self.tasks.add(task)
        return thread.last

    def _issue(self, event: Operator | Copy | Collective, cost: Counter[Rate], name: str) -> int:
        inputs = () if isinstance(event, Collective) else event.inputs
        others = {self._issued[i][1] for i in inputs if i in self._issued and self._issued[i][0] != event.thread}
        before = others if self._phase == Phase.BACKWARD else set()
        issued = self._on_host(event.thread, name, cost, before)
        self._issued[event.id] = event.thread, issued
        return issued

    # Streams

    def _known(self, events: Iterable[int]) -> set[int]:
        return {self._done[event] for event in events if event in self._done}

    def _on_stream(self, event_ids: Iterable[int], streams: Iterable[int], task: Task, issued: int) -> int:
        """Add a task that runs on these streams after all that they wait for."""
        before = {issued, *task.before}
        for stream in streams:
            before |= self._awaited.pop(stream, set())
            if stream in self._last_of_stream:
                before.add(self._last_of_stream[stream])
        task.before, task.phase = tuple(before), self._phase
        devices = self._facts.streams
        task.streams = tuple((devices[stream], stream) for stream in streams if stream in devices)
        index = self.tasks.add(task)
        for stream in streams:
            self._last_of_stream[stream] = index
        for event in event_ids:
            self._done[event] = index
        return index

    def _operator(self, event: Operator) -> None:
        if not event.is_launched:
            self._thread(event.thread).pending[_host(HostCost.VIEW)] += 1
            return
        if self._phase == Phase.OPTIMISER and self._facts.has_foreach and event.name in self._foreach:
            self._grow(self._foreach[event.name], event)
            return
        if event.flops:
            self._replicate()
        issued = self._issue(event, self._call_cost(), event.name)
        index = self._compute(event, issued)
        if self._phase == Phase.OPTIMISER:
            self._foreach[event.name] = index

    def _compute(self, event: Operator, issued: int) -> int:
        """Add an operator of a device, which the host has issued."""
        task = Task(
            Role.COMPUTE, event.name, (f"compute {event.device}",), dict(compute_cost(event)), device=event.device
        )
        return self._on_stream([event.id], [event.stream], task, issued)

    def _graph(self, event: GraphLaunch) -> None:
        self._on_host(event.thread, "graph's Python", Counter({_host(HostCost.FORWARD_PYTHON): 1}), is_locked=True)
        cost = Counter({_host(HostCost.GRAPH_LAUNCH): 1, _host(HostCost.GRAPH_NODE): len(event.nodes)})
        issued = self._on_host(event.thread, "launch of a graph", cost)
        for node in event.nodes:
            if isinstance(node, Wait):
                self._awaited.setdefault(node.stream, set()).update(self._known(node.after))
                continue
            self._issued[node.id] = event.thread, issued
            self._compute(node, issued)

    def _grow(self, index: int, event: Operator) -> None:
        """Add an operator of the optimizer to the one kernel for many parameters."""
        cost = self.tasks.all[index].cost
        for rate, amount in compute_cost(event).items():
            if rate != ("gap",):
                cost[rate] = cost.get(rate, 0) + amount
        self._done[event.id] = index

    def _call_cost(self) -> Counter[Rate]:
        if self._phase == Phase.BACKWARD:
            return Counter({_host(HostCost.BACKWARD): 1})
        return Counter({_host(HostCost.FORWARD_PYTHON): 1, _host(HostCost.FORWARD_NATIVE): 1})

    def _copy(self, event: Copy) -> None:
        name = f"copy {name_of(event.source)} to {name_of(event.destination)}"
        issued = self._issue(event, Counter({_host(HostCost.COPY): 1}), name)
        ends = name_of(event.source), name_of(event.destination)
        cost: dict[Rate, float] = {("route", *ends): event.size_bytes, ("latency", *ends): 1}
        links = self._machine.routes[event.source, event.destination]
        self._on_stream([event.id], [event.stream], Task(Role.LINK, name, links, cost), issued)

    def _collective(self, event: Collective) -> None:
        devices = len(event.streams)
        issued = self._issue(event, Counter({_host(HostCost.COLLECTIVE): devices}), event.name)
        cost: dict[Rate, float] = {("collective", event.name, str(event.size_bytes)): 1}
        task = Task(Role.LINK, event.name, ("nccl",), cost)
        self._on_stream([event.id, *event.replaces], event.streams, task, issued)


def _host(cost: str) -> Rate:
    return ("host", str(cost))


def compute_cost(event: Operator) -> dict[Rate, float]:
    """Return what an operator costs its device."""
    kind = kind_of(event.name)
    cost: dict[Rate, float] = {("byte", kind): event.read_bytes + event.written_bytes, ("gap",): 1}
    if event.flops and kind in FLOP_KINDS:
        cost["flop", kind] = event.flops
    return cost
