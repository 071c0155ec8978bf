"""The table ``host`` of a machine file, from measured calls. Pure.

A cost that was not measured is that of ``costs.eager`` in parts.toml, times the median ratio of the measured costs to
theirs there: a host that issues operators twice as fast is taken to do the rest twice as fast.
"""

from collections.abc import Mapping
from typing import Any

from dpbench.doctor.measured import Measurements, Slope
from dpbench.doctor.numbers import entry, from_part, median, quantity, times, total, usable
from dpbench.projection.described.machine import HostCost, Quantity

_HANDED_OVER = (HostCost.EVENT_RECORD, HostCost.STREAM_WAIT, HostCost.RECORD_STREAM)
_PART = "costs.eager of dpbench/machines/parts.toml"


def host_table(found: Measurements, parts: Mapping[str, Any], stamp: str) -> dict[str, Any]:
    """Return the table ``host`` with every cost."""
    eager = {cost: from_part(parts["costs"]["eager"][cost], "seconds") for cost in HostCost}
    measured = measured_costs(found, stamp)
    ratio = median(value.mid / eager[cost].mid for cost, value in measured.items()) or 1.0
    costs = {cost: measured.get(cost) or _scaled(eager[cost], ratio) for cost in HostCost}
    one = Quantity(1.0, 1.0, 1.0, f"{stamp}: the costs are this host's own")
    return {
        "factor": entry(one, "ratio"),
        "costs": {str(cost): entry(value, "seconds") for cost, value in costs.items()},
    }


def measured_costs(found: Measurements, stamp: str) -> dict[HostCost, Quantity]:
    """Return the costs that the measurements show."""
    costs = {cost: quantity(series, stamp) for cost, series in found.calls_s.items()}
    costs |= _forward(found, stamp)
    for cost, slope in found.slopes.items():
        costs[cost] = quantity(per_part(slope), f"{stamp}: from {slope.short} to {slope.long} of them")
    backward = found.slopes.get(HostCost.BACKWARD)
    if backward is not None:
        costs[HostCost.BACKWARD_START] = quantity(_start(backward), f"{stamp}: what is left at no operator")
    if found.collectives is not None:
        costs[HostCost.COLLECTIVE] = quantity(
            (each / len(found.names) for each in found.collectives.host_s), f"{stamp}: all_reduce, for each device"
        )
    known = {cost: value for cost, value in costs.items() if value is not None}
    if all(cost in known for cost in _HANDED_OVER):
        source = f"{stamp}: the sum of event_record, stream_wait and record_stream, called from Python"
        known[HostCost.ENGINE_HANDOVER] = total((known[cost] for cost in _HANDED_OVER), source)
    return known


def per_part(slope: Slope) -> list[float]:
    """Return the seconds of one part, for each repeat."""
    parts = slope.long - slope.short
    pairs = zip(slope.short_s, slope.long_s, strict=False)
    return [] if parts <= 0 else _mostly([(long_s - short_s) / parts for short_s, long_s in pairs])


def _start(slope: Slope) -> list[float]:
    """Return the seconds that are not for the parts, for each repeat."""
    each = median(per_part(slope))
    return [] if each is None else _mostly([short_s - slope.short * each for short_s in slope.short_s])


def _mostly(seconds: list[float]) -> list[float]:
    """Return the times above 0 if they are the larger part; else there is more noise than time."""
    kept = usable(seconds)
    return kept if len(kept) > len(seconds) / 2 else []


def _forward(found: Measurements, stamp: str) -> dict[HostCost, Quantity | None]:
    """Return both parts of an operator in the forward: what its module adds, and the operator alone."""
    native = median(found.forward_builtin_s)
    if native is None:
        return {}
    python = _mostly([each - native for each in found.forward_module_s])
    return {
        HostCost.FORWARD_NATIVE: quantity(found.forward_builtin_s, f"{stamp}: the operator without its module"),
        HostCost.FORWARD_PYTHON: quantity(python, f"{stamp}: what the module's call adds to the operator"),
    }


def _scaled(value: Quantity, ratio: float) -> Quantity:
    source = (
        f"not measured: {_PART} times {ratio:.3g}, the median ratio of the measured costs to theirs: {value.source}"
    )
    return times(value, ratio, source)
