"""What a wrapper's start costs: modules that its import adds to torch's, construction, first forward."""

import builtins
import sys
from importlib import import_module
from typing import Any

import torch
from torch import nn

WITH_TORCH = frozenset(sys.modules)
"""The child that counts imports this module before all else that has torch."""
_WRAPPER, _LANES, _LAYERS, _FEATURES = "dpbench.parallel", 4, 4, 8


def count_start() -> dict[str, int]:
    from dpbench.measure.python_calls import PythonCalls  # here, because it comes after `WITH_TORCH`
    from dpbench.records.count_record import Phase

    modules = len(_imported())
    wrap = import_module(_WRAPPER).DataParallel
    layers = [nn.Sequential(nn.Linear(_FEATURES, _FEATURES), nn.BatchNorm1d(_FEATURES)) for _ in range(_LAYERS)]
    model, batch = nn.Sequential(*layers), torch.ones(2 * _LANES, _FEATURES)
    with PythonCalls() as calls:
        calls.enter(Phase.FORWARD)
        wrapper = wrap(model, ["cpu"] * _LANES)
        calls.enter(Phase.BACKWARD)
        wrapper(batch)
    names = ("start.construction_calls", "start.first_forward_calls")
    return {"start.modules": modules, **dict(zip(names, calls.by_phase().values(), strict=True))}


def _imported() -> set[str]:
    """Also modules that this process has already."""
    named, before, real = set[str](), set(sys.modules), builtins.__import__

    def note(name: str, names: Any = None, *others: Any) -> Any:
        if names and str(names.get("__name__")).startswith(_WRAPPER):
            named.add(name)
        return real(name, names, *others)

    builtins.__import__ = note  # type: ignore[assignment]  # it passes all arguments on
    try:
        import_module(_WRAPPER)
    finally:
        builtins.__import__ = real
    modules = (named | (sys.modules.keys() - before)) - WITH_TORCH
    return {name for name in modules if not name.startswith(_WRAPPER)}
