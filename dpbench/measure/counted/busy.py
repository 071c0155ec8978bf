"""A busy model: its uses have together what no counted workload has, on CPU lanes.

step           six lanes, keyword, nested and many inputs, a dict output, hooks, frozen and tied weights, channels_last
uneven         fewer items than lanes
mixed          uneven shares, and bf16 under autocast
accumulated    steps of several sizes, of which the last one reduces
functional     `data_parallel`
and zero_grad, state_dict, copied, pickled

A use that raises is *absent* and has no other counter.
"""

import pickle
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from dpbench.measure.counted.details import Sites
from dpbench.measure.counted.uses import count_use
from dpbench.records.count_record import ABSENT

_LANES, _ITEMS, _FEW, _SHARES = 6, 13, 4, (1, 2, 1)


class _Busy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Conv2d(2, 4, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.norm, self.one, self.two, self.frozen = nn.BatchNorm2d(4), *(nn.Linear(4, 4) for _ in range(3))
        self.two.weight = self.one.weight
        self.frozen.requires_grad_(False)
        self.image.register_forward_pre_hook(_pass_on)
        self.one.register_forward_hook(_pass_on)
        self.two.register_full_backward_hook(_pass_on)

    def forward(self, image: Tensor, point: Tensor, pair: Any, *, weight: Tensor, scale: float) -> Any:
        features = self.norm(self.image(image)).mean((2, 3))
        features = self.two(self.one(features) + point) + self.frozen(pair["left"]) + pair["others"][0] * weight
        return {"features": features * scale, "parts": [features.sum(1), (point,)]}


def _pass_on(*_: Any) -> None:
    """A hook that changes nothing."""


def _forward(model: Callable[..., Any], items: int = _ITEMS) -> Tensor:
    image, rows = torch.ones(items, 2, 4, 4).to(memory_format=torch.channels_last), torch.ones(items, 4)
    features: Tensor = model(image, rows, {"left": rows, "others": [rows, "name"]}, weight=rows, scale=2.0)["features"]
    return features.float().sum()


def _step(wrapper: Any, items: int = _ITEMS) -> None:
    _forward(wrapper, items).backward()


def _accumulated(wrapper: Any) -> None:
    for items in (_ITEMS, _FEW):
        with wrapper.accumulate():
            _step(wrapper, items)
    _step(wrapper)


def _functional(model: nn.Module) -> None:
    parallel = import_module("dpbench.parallel")
    options = {"device_ids": ["cpu"] * _LANES, "policy": parallel.Policy(dispatch="sequence")}
    _forward(lambda *inputs, **keywords: parallel.data_parallel(model, inputs, module_kwargs=keywords, **options))


def _wrapped(lanes: int = _LANES, **policy: Any) -> Any:
    parallel = import_module("dpbench.parallel")
    return parallel.DataParallel(_Busy(), ["cpu"] * lanes, policy=parallel.Policy(dispatch="sequence", **policy))


_USES: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "step": (_wrapped, _step),
    "uneven": (_wrapped, partial(_step, items=_FEW)),
    "mixed": (partial(_wrapped, len(_SHARES), shares=_SHARES), torch.autocast("cpu", torch.bfloat16)(_step)),
    "accumulated": (_wrapped, _accumulated),
    "functional": (_Busy, _functional),
    "zero_grad": (_wrapped, lambda wrapper: wrapper.zero_grad()),
    "state_dict": (_wrapped, lambda wrapper: wrapper.load_state_dict(wrapper.state_dict())),
    "copied": (_wrapped, lambda wrapper: _forward(deepcopy(wrapper))),
    "pickled": (_wrapped, lambda wrapper: _forward(pickle.loads(pickle.dumps(wrapper)))),  # noqa: S301  # its own
}


def count_busy(sites: Sites | None = None) -> dict[str, int]:
    """Counters by name; garbage collection must be off."""
    torch.manual_seed(0)
    counters = dict[str, int]()
    for name, (make, use) in _USES.items():
        try:
            counters |= {**count_use(name, make(), use, sites), f"{name}.{ABSENT}": 0}
        except Exception:  # of whatever kind: base and head are compared
            counters[f"{name}.{ABSENT}"] = 1
    return counters
