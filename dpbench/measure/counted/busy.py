"""Two busy models: their uses have together what the counted workloads have not, on CPU lanes. One counter for each.

step           six lanes, keyword, nested and many inputs, a dict output, hooks, frozen and tied parameters,
               channels_last; forward and backward apart
uneven         a last batch of fewer items than lanes
mixed          uneven shares, and bf16 under autocast
accumulated    steps of several sizes, of which the last one reduces
and zero_grad, state_dict, copied, pickled; functional, which is `data_parallel`

A use that raises is *absent*, and has no other counter. So it is in a wrapper that does not know it yet.
"""

import pickle
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from dpbench.measure.counted.host_work import HostWork
from dpbench.measure.python_calls import PythonCalls
from dpbench.records.counts import ABSENT, Phase

_LANES, _ITEMS, _FEW = 6, 13, 4
_SHARES = (1, 2, 1)
_TURNS_BEFORE = 1

Enter = Callable[[Phase], object]
Use = Callable[[Any, Enter], object]


class _Busy(nn.Module):
    """A model with hooks, frozen and tied parameters, and memory in the order of channels."""

    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Conv2d(2, 4, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.norm, self.one, self.two, self.frozen = (
            nn.BatchNorm2d(4),
            nn.Linear(4, 4),
            nn.Linear(4, 4),
            nn.Linear(4, 4),
        )
        self.two.weight = self.one.weight
        self.frozen.requires_grad_(False)
        self.image.register_forward_pre_hook(_pass_on)
        self.one.register_forward_hook(_pass_on)
        self.two.register_full_backward_hook(_pass_on)

    def forward(self, image: Tensor, point: Tensor, pair: Any, *, weight: Tensor, scale: float = 1.0) -> Any:
        found = self.norm(self.image(image)).mean((2, 3))
        found = self.two(self.one(found) + point) + self.frozen(pair["left"]) + pair["others"][0] * weight
        return {"found": found * scale, "parts": [found.sum(1), (point,)]}


def _pass_on(*_: Any) -> None:
    """Change nothing, as a hook."""


def _inputs(items: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    image = torch.ones(items, 2, 4, 4).to(memory_format=torch.channels_last)
    rows = torch.ones(items, 4)
    return (image, rows, {"left": rows, "others": [rows, "name"]}), {"weight": rows, "scale": 2.0}


def _forward(model: Callable[..., Any], items: int = _ITEMS) -> Tensor:
    inputs, keywords = _inputs(items)
    found: Tensor = model(*inputs, **keywords)["found"].float().sum()
    return found


def _step(wrapper: Any, enter: Enter, items: int = _ITEMS) -> None:
    loss = _forward(wrapper, items)
    enter(Phase.BACKWARD)
    loss.backward()


def _mixed(wrapper: Any, enter: Enter) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _step(wrapper, enter)


def _accumulated(wrapper: Any, enter: Enter) -> None:
    for items in (_ITEMS, _FEW):
        with wrapper.accumulate():
            _forward(wrapper, items).backward()
    _step(wrapper, enter)


def _functional(model: nn.Module, _: Enter) -> None:
    parallel = import_module("dpbench.parallel")

    def forward(*inputs: Any, **keywords: Any) -> Any:
        policy = parallel.Policy(dispatch="sequence")
        return parallel.data_parallel(model, inputs, ["cpu"] * _LANES, module_kwargs=keywords, policy=policy)

    _forward(forward)


def _wrapped(lanes: int = _LANES, **policy: Any) -> Any:
    parallel = import_module("dpbench.parallel")
    wrapper = parallel.DataParallel(_Busy(), ["cpu"] * lanes, policy=parallel.Policy(dispatch="sequence", **policy))
    _forward(wrapper).backward()
    return wrapper


_USES: dict[str, tuple[Callable[[], Any], Use]] = {
    "step": (_wrapped, _step),
    "uneven": (_wrapped, partial(_step, items=_FEW)),
    "mixed": (partial(_wrapped, len(_SHARES), shares=_SHARES), _mixed),
    "accumulated": (_wrapped, _accumulated),
    "zero_grad": (_wrapped, lambda wrapper, _: wrapper.zero_grad()),
    "state_dict": (_wrapped, lambda wrapper, _: wrapper.load_state_dict(wrapper.state_dict())),
    "copied": (_wrapped, lambda wrapper, _: _forward(deepcopy(wrapper))),
    "pickled": (_wrapped, lambda wrapper, _: _forward(pickle.loads(pickle.dumps(wrapper)))),  # noqa: S301  # its own
    "functional": (_Busy, _functional),
}


def count_busy() -> dict[str, int]:
    """Return each counter by its name. Garbage collection must be switched off."""
    torch.manual_seed(0)
    found = dict[str, int]()
    for name, (make, use) in _USES.items():
        counters, is_absent = dict[str, int](), False
        try:
            counters = _counted(name, make(), use)
        except Exception:  # of whatever kind: base and head are compared
            is_absent = True
        found |= {**counters, f"{name}.{ABSENT}": is_absent}
    return found


def _counted(name: str, target: Any, use: Use) -> dict[str, int]:
    for _ in range(_TURNS_BEFORE):
        use(target, lambda _: None)
    with PythonCalls() as calls:
        calls.enter(Phase.FORWARD)
        use(target, calls.enter)
    with HostWork() as work:
        work.enter(Phase.FORWARD)
        use(target, work.enter)
    return {
        f"{name}.{phase}.{counter}": value
        for counter, values in {
            "python_calls": calls.by_phase(),
            "host_operators": work.operators,
            "host_bytes": work.written_bytes,
        }.items()
        for phase, value in values.items()
    }
