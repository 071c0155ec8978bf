"""Uses of the wrapper that no counted workload has, each with one thing that is unusual, on six lanes.

gate.toml names this file. dpbench/measure/counted/uses.py counts them. `many_` uses are for CPU lanes: what grows there
is work of the host.
"""

import pickle
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

LANES = 6
_ITEMS, _FEW, _SHARES, _MANY = 13, 4, (1, 2, 1, 1, 1, 1), 60


class _Scale(nn.Module):
    """Times the mean of a weight. A lane whose weight has lost its type or memory format converts it, which shows."""

    def __init__(self, weight: Tensor | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4) if weight is None else weight)
        self.kind = self.weight.dtype
        self.form = torch.channels_last if self.weight.dim() == 4 else torch.preserve_format

    def forward(self, rows: Tensor) -> Tensor:
        return rows * self.weight.to(self.kind, memory_format=self.form).mean()


class _Model(nn.Module):
    """The layers on the sum of the tensors among all inputs; the output is one tensor, or a dict of `keys` of them."""

    def __init__(self, layers: Sequence[nn.Module], keys: int) -> None:
        super().__init__()
        self.layers, self.keys = nn.Sequential(*layers), keys

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        tensors = [leaf for leaf in tree_leaves((inputs, keywords)) if isinstance(leaf, Tensor)]
        rows = self.layers(sum(tensors[1:], tensors[0]))
        return {str(key): rows for key in range(self.keys)} if self.keys else rows


def _step(model: Callable[..., Any], *sizes: int, inputs: Callable[[Tensor], Any] = lambda x: ((x,), {})) -> None:
    for size in sizes or (_ITEMS,):
        positional, keywords = inputs(torch.ones(size, 4))
        outputs = tree_leaves(model(*positional, **keywords))
        sum(output.float().sum() for output in outputs).backward()


def _hooked() -> list[nn.Module]:
    layer = _Scale()
    layer.register_forward_pre_hook(_pass_on)
    layer.register_forward_hook(_pass_on)
    layer.register_full_backward_hook(_pass_on)
    return [layer, _Scale()]


def _pass_on(*_: Any) -> None:
    """A hook that changes nothing."""


def _tied() -> list[nn.Module]:
    one, other = _Scale(), _Scale()
    other.weight = one.weight
    return [one, other]


def _toggled(wrapper: Any) -> None:
    for is_training in (True, False):
        wrapper.train(is_training)(torch.ones(_ITEMS, 4))


def _two_forwards(wrapper: Any) -> None:
    outputs = [wrapper(torch.ones(_ITEMS, 4)) for _ in range(2)]
    torch.stack(outputs).sum().backward()


def _autocast(wrapper: Any) -> None:
    with torch.autocast(next(wrapper.parameters()).device.type, torch.bfloat16):
        output = wrapper(torch.ones(_ITEMS, 4))
    output.float().sum().backward()


def _accumulated(wrapper: Any) -> None:
    for items in (_ITEMS, _FEW):
        with wrapper.accumulate():
            _step(wrapper, items)
    _step(wrapper)


def _functional(wrapper: Any) -> None:
    parallel, options = import_module("dpbench.parallel"), {"device_ids": wrapper.device_ids, "policy": wrapper.policy}
    _step(lambda *inputs, **words: parallel.data_parallel(wrapper.module, inputs, module_kwargs=words, **options))


def _anew(wrapper: Any) -> None:
    """From the construction on: what is done once may be quadratic too."""
    _zeroed(type(wrapper)(wrapper.module, wrapper.device_ids, policy=wrapper.policy))


def _zeroed(wrapper: Any) -> None:
    _step(wrapper)
    wrapper.zero_grad()


@dataclass(frozen=True)
class _Use:
    act: Callable[[Any], object] = _step
    layers: Callable[[], Sequence[nn.Module]] = lambda: [_Scale(), _Scale()]
    keys: int = 0
    lanes: int = LANES
    policy: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, devices: Sequence[str]) -> Callable[[], object]:
        parallel = import_module("dpbench.parallel")
        model = _Model(self.layers(), self.keys).to(devices[0])
        policy = parallel.Policy(dispatch="sequence", **self.policy)
        return partial(self.act, parallel.DataParallel(model, list(devices[: self.lanes]), policy=policy))


USES: Mapping[str, _Use] = {
    "keywords": _Use(partial(_step, inputs=lambda x: ((), {"x": x, "scale": 2.0}))),
    "nested": _Use(partial(_step, inputs=lambda x: (({"left": x, "others": [x, "name"]}, (x,)), {}))),
    "many_inputs": _Use(partial(_step, inputs=lambda x: ((x,) * _MANY, {})), lanes=2),
    "many_keywords": _Use(partial(_step, inputs=lambda x: ((), {str(key): x for key in range(_MANY)})), lanes=2),
    "many_outputs": _Use(keys=_MANY, lanes=2),
    "many_parameters": _Use(_anew, lambda: [_Scale() for _ in range(_MANY)], lanes=2),
    "hooks": _Use(layers=_hooked),
    "frozen": _Use(layers=lambda: [_Scale(), _Scale().requires_grad_(False)]),
    "tied": _Use(layers=_tied),
    "half": _Use(layers=lambda: [_Scale(), _Scale(torch.ones(4, dtype=torch.bfloat16))]),
    "channels_last": _Use(layers=lambda: [_Scale(torch.ones(2, 4, 3, 3).to(memory_format=torch.channels_last))]),
    "images": _Use(partial(_step, inputs=lambda x: ((_image(x),), {}))),
    "uneven": _Use(lambda wrapper: _step(wrapper, _FEW)),
    "sizes": _Use(lambda wrapper: _step(wrapper, _ITEMS, _FEW, 2 * _ITEMS)),
    "shares": _Use(policy={"shares": _SHARES}),
    "toggled": _Use(_toggled),
    "two_forwards": _Use(_two_forwards),
    "autocast": _Use(_autocast),
    "accumulated": _Use(_accumulated),
    "functional": _Use(_functional),
    "zero_grad": _Use(_zeroed),
    "state_dict": _Use(lambda wrapper: wrapper.load_state_dict(wrapper.state_dict())),
    "once_copied": _Use(lambda wrapper: _step(deepcopy(wrapper))),
    "once_pickled": _Use(lambda wrapper: _step(pickle.loads(pickle.dumps(wrapper)))),  # its own
}


def _image(rows: Tensor) -> Tensor:
    return rows.view(-1, 4, 1, 1).expand(-1, 4, 2, 2).contiguous(memory_format=torch.channels_last)
