"""The seconds of each phase of a step, from extra steps after the timed ones.

    forward    zero_grad, the variant's forward and the loss         parts: scatter, replicate, parallel_apply, gather,
                                                                     loss
    backward   from the loss to the last gradient                    part: reduce
    optimiser  the optimizer's step

The first four parts are the variant's methods of these names. `loss` includes the copy of the target. `reduce` is the
time of the autograd nodes that sum the lanes' gradients; other nodes may run beside them.

On devices with timed events, work on another stream shows when the current stream waits for it. On others the clock is
read with the devices idle, so phases that overlap in a timed step run one after the other here.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.graph import Node

from dpbench.cases.names import Mode
from dpbench.measure.clock import Stopwatch, make_clock, make_stopwatch
from dpbench.measure.session import Session
from dpbench.records.count_record import Phase

STEPS_OF_VARIANT = ("scatter", "replicate", "parallel_apply", "gather")
TRAINING = ("loss", "backward", "reduce", "optimiser")
PHASES = ("forward", *STEPS_OF_VARIANT, *TRAINING)

_IN_GRAPHS = ("replicate", "parallel_apply", "gather")
"""Methods that a wrapper with CUDA graphs does not call, or that must not be replaced."""
_WRAPPERS = ("torch.nn.parallel.", "dpbench.parallel.", "dpbench.variants.")
_SHARE = 0.05
_MOST_STEPS = 10


def steps_worth(step_s: float, sampling_s: float) -> int:
    return max(1, min(_MOST_STEPS, round(_SHARE * sampling_s / step_s)))


def phases_of(session: Session, steps: int) -> dict[str, float | str]:
    """For each of `PHASES` the median seconds of `steps` more steps, or the reason for none."""
    devices, mode = session.placement.devices, session.case.mode
    watch, idle = make_stopwatch(devices), make_clock(devices)
    taken = []
    for _ in range(steps):
        spans = _Spans(watch, devices)
        observe_step(session, spans)
        idle()
        taken.append(spans.seconds())
    medians_s = {phase: _seconds(phase, taken) for phase in PHASES}
    has_graphs = _has_graphs(session)
    return {
        phase: _why_none(phase, mode, has_graphs=has_graphs) if seconds is None else seconds
        for phase, seconds in medians_s.items()
    }


def _has_graphs(session: Session) -> bool:
    return getattr(getattr(session.scheme, "policy", None), "graphs", False) is True


def _seconds(phase: str, taken: list[dict[str, float]]) -> float | None:
    times_s = [seconds[phase] for seconds in taken if phase in seconds]
    return median(times_s) if times_s else None


def _why_none(phase: str, mode: Mode, *, has_graphs: bool) -> str:
    if has_graphs and phase in _IN_GRAPHS:
        return "the time of this part alone cannot be read while lanes run as CUDA graphs"
    if mode is Mode.INFER and phase in TRAINING:
        return "inference has no such phase"
    if phase == "reduce":
        return "no autograd node of this variant only sums the lanes' gradients"
    return "the variant has no such method, or does not call it on these devices"


class _Spans:
    def __init__(self, watch: Stopwatch, devices: Sequence[torch.device]) -> None:
        self._watch, self._devices = watch, devices
        self._begun: dict[str, Any] = {}
        self._done: dict[str, list[tuple[Any, Any]]] = {}

    def begin(self, phase: str) -> None:
        self._begun[phase] = self._watch.mark(self._devices)

    def end(self, phase: str) -> None:
        self._done.setdefault(phase, []).append((self._begun.pop(phase), self._watch.mark(self._devices)))

    def end_open(self) -> None:
        for phase in list(self._begun):
            self.end(phase)

    def watch_reduction(self, loss: Tensor) -> None:
        """Mark each reduction node in its own thread, on the base's device."""
        for node in reduction_nodes(loss):
            self._watch_node(node, self._done.setdefault("reduce", []))

    def _watch_node(self, node: Node, done: list[tuple[Any, Any]]) -> None:
        base, begun = self._devices[:1], list[Any]()
        node.register_prehook(lambda _: begun.append(self._watch.mark(base)))
        node.register_hook(lambda *_: done.append((begun.pop(), self._watch.mark(base))))

    def seconds(self) -> dict[str, float]:
        return {phase: sum(self._watch.between(*span) for span in spans) for phase, spans in self._done.items()}


class StepObserver(Protocol):
    def begin(self, phase: str) -> None: ...
    def end(self, phase: str) -> None: ...
    def end_open(self) -> None: ...
    def watch_reduction(self, loss: Tensor) -> None: ...


def observe_step(session: Session, spans: StepObserver) -> None:
    """Take one step with marks at the edges of its phases, then restore the session."""

    def enter(phase: Phase) -> None:
        spans.end_open()
        spans.begin(phase)

    def loss(call: Callable[..., Tensor], *batch: Any) -> Tensor:
        value = call(*batch)
        spans.end_open()  # the search of the graph is not part of the step
        spans.watch_reduction(value)
        return value

    def forward(call: Callable[..., Any], *batch: Any) -> Any:
        output = call(*batch)
        spans.begin("loss")
        return output

    with ExitStack() as replaced:
        if session.case.mode is Mode.TRAIN:
            replaced.enter_context(_replaced(session, "loss", loss))
            replaced.enter_context(_replaced(session, "forward", forward))
        for name in STEPS_OF_VARIANT:
            if hasattr(session.scheme, name) and not (_has_graphs(session) and name in _IN_GRAPHS):
                replaced.enter_context(_replaced(session.scheme, name, _spanned(name, spans)))
        session.step(enter)
        spans.end_open()


def _spanned(name: str, spans: StepObserver) -> Callable[..., Any]:
    def step(call: Callable[..., Any], *args: Any) -> Any:
        spans.begin(name)
        try:
            return call(*args)
        finally:
            spans.end(name)

    return step


@contextmanager
def _replaced(owner: Any, name: str, around: Callable[..., Any]) -> Iterator[None]:
    method = getattr(owner, name)
    vars(owner)[name] = lambda *args: around(method, *args)
    try:
        yield
    finally:
        del vars(owner)[name]


def reduction_nodes(loss: Tensor) -> list[Node]:
    """A data-parallel wrapper's nodes that write the base's gradients."""
    nodes: list[Node] = []
    seen: set[Node | None] = {None}
    waiting = [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        following = [successor for successor, _ in node.next_functions]
        if _is_a_wrappers(node) and any(map(_writes_gradient, following)):
            nodes.append(node)
        waiting += following
    return nodes


def _is_a_wrappers(node: Node) -> bool:
    function = getattr(type(node), "_forward_cls", None)  # torch.autograd.function.FunctionMeta sets it
    return function is not None and function.__module__.startswith(_WRAPPERS)


def _writes_gradient(node: Node | None) -> bool:
    return node is not None and node.name() == "torch::autograd::AccumulateGrad"
