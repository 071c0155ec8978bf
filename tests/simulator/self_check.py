"""Checks whether the simulator works with this torch: known work, races injected on purpose, gradients.

`fault` runs in a process that does nothing else, because the devices stay registered. Each check compares with numbers
that hold for every torch: bytes of messages, FLOPs of matrix products, streams, gradients.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from dpbench.records.recording import Copy, Operator, Recording
from dpbench.simulator import backend
from dpbench.simulator.memory.races import RaceError
from dpbench.simulator.simulation import recording

_DEVICES = 2


class _WrongError(Exception):
    """What the simulator gets wrong, in one line."""


def fault() -> str | None:
    """Start the simulator and return the first thing that it gets wrong, None if there is none."""
    try:
        backend.start_devices(_DEVICES)
        for check in (_check_known_work, _check_streams, _check_races, _check_gradients, _check_training):
            torch.manual_seed(0)
            check()
    except _WrongError as wrong:
        return str(wrong)
    except Exception as error:
        return f"{type(error).__name__}: {_one_line(error)}"
    return None


def _one_line(error: Exception) -> str:
    """Return the first line; if a replica raised the error, the last, because its traceback comes first."""
    lines = str(error).strip().splitlines() or [""]
    return lines[-1 if "Traceback" in str(error) else 0]


def _expect(what: str, actual: object, expected: object) -> None:
    if actual != expected:
        raise _WrongError(f"{what}: {actual}, not {expected}")


def _check_known_work() -> None:
    """One step of the stock wrapper: a batch of 6 x 4 floats, halved, through `nn.Linear(4, 3)`."""
    model = nn.Linear(4, 3)
    batch = torch.randn(6, 4)
    model(batch).sum().backward()
    expected = [p.grad for p in model.parameters()]
    model.zero_grad()
    memory = torch.get_device_module("sim").memory_allocated
    copy = model.to("sim:0")
    _expect("allocated bytes", memory(0), 2 * 512)
    with recording() as events:
        nn.DataParallel(copy)(batch).sum().backward()
    weights, chunk, output = (4 * 3 + 3) * 4, 3 * 4 * 4, 3 * 3 * 4
    _expect(
        "bytes over each link",
        _bytes_by_link(events),
        {(None, 0): chunk, (None, 1): chunk, (0, 1): weights + output, (1, 0): output + weights},
    )
    # The forward product and that of the weight's gradient: 2 * 3 * 4 * 3 FLOPs on each device.
    _expect("FLOPs by device", _flops_by_device(events), {0: 144, 1: 144})
    _expect_close("gradients of the stock wrapper", [p.grad for p in copy.parameters()], expected)


def _bytes_by_link(events: Recording) -> dict[tuple[int | None, int | None], int]:
    sent_bytes: Counter[tuple[int | None, int | None]] = Counter()
    for event in events.events:
        if isinstance(event, Copy) and event.source != event.destination:
            sent_bytes[event.source, event.destination] += event.size_bytes
    return dict(sent_bytes)


def _flops_by_device(events: Recording) -> dict[int, int]:
    flops: Counter[int] = Counter()
    for event in events.events:
        if isinstance(event, Operator) and event.flops:
            flops[event.device] += event.flops
    return dict(flops)


def _expect_close(what: str, tensors: list[Any], expected: list[Any]) -> None:
    for one, other in zip(tensors, expected, strict=True):
        if one.shape != other.shape or not torch.allclose(one.detach().cpu(), other, rtol=1e-4, atol=1e-6):
            raise _WrongError(f"{what} differ from those of the CPU")


class _Cube(torch.autograd.Function):
    """It computes on the stream `inner`. Its backward runs on the caller's stream."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, inner: torch.Stream) -> Tensor:
        sim = torch.get_device_module("sim")
        outer = sim.current_stream(x.device)
        inner.wait_stream(outer)
        with sim.stream(inner):
            y = x**3
        outer.wait_stream(inner)
        ctx.save_for_backward(x)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return 3 * x**2 * gradient, None


def _check_streams() -> None:
    """A backward operator runs on its forward's stream, for torch's own nodes and for those of custom functions."""
    sim = torch.get_device_module("sim")
    side, inner, x = sim.Stream(0), sim.Stream(0), torch.ones(8, device="sim:0", requires_grad=True)
    for name, forward in {"exp": torch.exp, "a custom function": lambda x: _Cube.apply(x, inner)}.items():
        side.wait_stream(sim.current_stream(0))
        with sim.stream(side):
            y = forward(x)
        sim.current_stream(0).wait_stream(side)
        z = y * 2
        node = y.grad_fn
        with recording() as events:
            z.sum().backward()
        streams = {event.stream for event in events.events if isinstance(event, Operator) and event.node == node.name()}
        _expect(f"streams of the backward of {name}", streams, {side.stream_id})


def _check_races() -> None:
    """Each access raises RaceError without its wait, and nothing with it."""
    for name, access in {
        "a read of another stream's write": _read_unfinished,
        "a write to memory that another stream still reads": _reuse_memory,
        "a backward's read of another stream's write": _write_before_backward,
    }.items():
        for is_ordered in (True, False):
            try:
                access(is_ordered)
            except RaceError as error:
                if is_ordered:
                    raise _WrongError(f"{name} is reported as a race although it waits: {error}") from error
            else:
                if not is_ordered:
                    raise _WrongError(f"a race is not reported: {name}")
            torch.get_device_module("sim").synchronize(0)


def _read_unfinished(is_ordered: bool) -> None:
    sim = torch.get_device_module("sim")
    side, x = sim.Stream(0), torch.zeros(100, device="sim:0")
    if is_ordered:
        side.wait_stream(sim.current_stream(0))
    with sim.stream(side):
        x.sum()


def _reuse_memory(is_ordered: bool) -> None:
    sim = torch.get_device_module("sim")
    side, x = sim.Stream(0), torch.zeros(100, device="sim:0")
    side.wait_stream(sim.current_stream(0))
    with sim.stream(side):
        x.sum()
    if is_ordered:
        x.record_stream(side)
    del x
    torch.zeros(100, device="sim:0")


def _write_before_backward(is_ordered: bool) -> None:
    """A backward on one stream reads a factor that another stream has written since the forward."""
    sim = torch.get_device_module("sim")
    x, factor = torch.ones(100, device="sim:0", requires_grad=True), torch.ones(100, device="sim:0")
    side, y = sim.Stream(0), (x * factor).sum()
    side.wait_stream(sim.current_stream(0))
    with sim.stream(side):
        factor.data.add_(1)
    if is_ordered:
        sim.current_stream(0).wait_stream(side)
    y.backward()


def _check_gradients() -> None:
    """Gradients equal the difference quotients, in double precision."""
    inner = torch.get_device_module("sim").Stream(1)
    functions: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "a matrix product": lambda a, b: torch.tanh(a @ b),
        "a custom function": lambda a, b: _Cube.apply(a, inner) @ b,
    }
    a, b = (torch.randn(2, 2, dtype=torch.double, device="sim:1", requires_grad=True) for _ in range(2))
    for name, function in functions.items():
        if not torch.autograd.gradcheck(function, (a, b), raise_exception=False):
            raise _WrongError(f"the gradient of {name} differs from its difference quotients")


def _check_training() -> None:
    """Two steps of a small network end with the weights that they have on the CPU."""
    weights = []
    for device in ("cpu", "sim:1"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
        images, labels = torch.randn(4, 1, 4, 4), torch.arange(4) % 3
        model.to(device)
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images.to(device)), labels.to(device)).backward()
            optimizer.step()
        weights.append(list(model.state_dict().values()))
    _expect_close("the weights after two steps", weights[1], weights[0])
