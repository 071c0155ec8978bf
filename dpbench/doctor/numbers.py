"""Numbers of a machine file: from repeats to low, mid and high, and to TOML. Pure."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from dpbench.projection.described.fields import BOUNDS, UNITS
from dpbench.projection.described.machine import Quantity
from dpbench.sweep.outside import one_line

_UNITS = {"bytes": "GiB", "bandwidth": "GB/s", "flops": "TFLOP/s", "seconds": "us", "ratio": "ratio"}
_LEAST, _MOST = 1e-12, 1e24  # in SI units: a time below a picosecond is no time
_SHARES = (0.1, 0.5, 0.9)


def usable(values: Iterable[float]) -> list[float]:
    """Return the values that can be a measured number: finite and above 0."""
    return [value for value in values if _LEAST <= value <= _MOST]


def quantity(values: Iterable[float], source: str) -> Quantity | None:
    """Return the 10 %, 50 % and 90 % quantile of all usable values; None if there is none."""
    kept = usable(values)
    if not kept:
        return None
    low, mid, high = (float(each) for each in np.quantile(kept, _SHARES))
    return Quantity(low, mid, high, source)


def rates(amount: float, seconds: Iterable[float]) -> list[float]:
    """Return the amount per second of each usable time."""
    return [amount / each for each in usable(seconds)]


def median(seconds: Iterable[float]) -> float | None:
    """Return the median of the usable values; None if there is none."""
    kept = usable(seconds)
    return float(np.median(kept)) if kept else None


def capped(value: Quantity, most: float) -> Quantity:
    """Return the quantity with no number above `most`."""
    return Quantity(min(value.low, most), min(value.mid, most), min(value.high, most), value.source)


def times(value: Quantity, factor: float, source: str) -> Quantity:
    """Return a multiple of the quantity."""
    return Quantity(factor * value.low, factor * value.mid, factor * value.high, source)


def total(values: Iterable[Quantity], source: str) -> Quantity:
    """Return the sum of quantities."""
    kept = list(values)
    return Quantity(sum(v.low for v in kept), sum(v.mid for v in kept), sum(v.high for v in kept), source)


def entry(value: Quantity, dimension: str) -> dict[str, Any]:
    """Return the number as a machine file has it, with four digits, and within the bounds that it is read with."""
    unit = _UNITS[dimension]
    scale = UNITS[dimension][unit]
    least, most = BOUNDS[dimension]
    inside = (min(max(each, 2 * least), most / 2) for each in (value.low, value.mid, value.high))  # also when rounded
    low, mid, high = (float(f"{each / scale:.4g}") for each in inside)
    return {"low": low, "mid": mid, "high": high, "unit": unit, "source": one_line(value.source)}


def from_part(part: Mapping[str, Any], dimension: str) -> Quantity:
    """Return a number of parts.toml in SI units."""
    unit = UNITS[dimension][part["unit"]]
    return Quantity(part["low"] * unit, part["mid"] * unit, part["high"] * unit, part["source"])


def toml(table: Mapping[str, Any], place: str = "") -> str:
    """Return a table as TOML. A number's table is inline; other tables come last."""
    lines = [f"{key} = {_value(value)}" for key, value in table.items() if not _is_table(value)]
    text = "\n".join([f"[{place}]", *lines] if place and lines else lines)
    parts = [text] if text else []
    parts += [toml(value, f"{place}.{key}".lstrip(".")) for key, value in table.items() if _is_table(value)]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping) and "unit" not in value


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_value(each)}" for key, each in value.items()) + " }"
    if isinstance(value, float):
        return f"{value:g}"
    return json.dumps(value, ensure_ascii=False)
