"""The table ``device`` of a machine file, from measured operators. Pure.

A peak is what large operators reach, not the vendor's figure. An operator's efficiency is its share of that::

    seconds = FLOPs / (peak x efficiency) + bytes / (bandwidth x efficiency of element-wise operators) + gap

A kind that was not measured has the share of the nearest architecture in parts.toml, relative to that architecture's
own large operators.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from dpbench.doctor.measured import Measurements, TimedOperator
from dpbench.doctor.numbers import capped, entry, from_part, median, quantity, rates, usable
from dpbench.errors import UnusableMachineError
from dpbench.projection.described.machine import FLOP_KINDS, Kind, Quantity

_LEAST_SHARE = 0.001
_BY_CAPABILITY = ((9, 0, "hopper"), (8, 1, "ampere-ada-desktop"), (8, 0, "ampere-a100"), (7, 5, "turing-desktop"))
_OLDER = ((7, 0, "volta"), (0, 0, "pascal"))
_BY_NAME = {"H200": "hopper-h200", "L4": "ada-l4", "T4": "turing-t4"}


class NothingMeasuredError(UnusableMachineError):
    """A number that a machine file cannot do without was not measured. The text is one line with the reason."""


def device_table(found: Measurements, parts: Mapping[str, Any], stamp: str) -> dict[str, Any]:
    """Return the table ``device``. Raise NothingMeasuredError without a float32 rate or a bandwidth of the memory."""
    peaks = _peaks(found, stamp)
    bandwidth = _bandwidth(found, stamp)
    gap = quantity(found.gap_s, stamp) or from_part(parts["gap"]["queued"], "seconds")
    shares = _Shares(found, peaks, bandwidth, gap, stamp)
    architecture = architecture_of(found.names[0], found.capability)
    memory = quantity(found.memory_bytes[:1], f"{stamp}: as torch reports it")
    if memory is None:
        raise NothingMeasuredError(f"device.memory: torch reports {found.memory_bytes[0]} bytes for {found.names[0]}")
    return {
        "memory": entry(memory, "bytes"),
        "bandwidth": entry(bandwidth, "bandwidth"),
        "gap": entry(gap, "seconds"),
        "factor": entry(_factor(found, stamp), "ratio"),
        "peak": {name: entry(peak, "flops") for name, peak in peaks.items()},
        "efficiency": _efficiency(shares, architecture, parts["efficiency"][architecture]),
    }


def skew_of(found: Measurements, stamp: str) -> Quantity:
    """Return by what factor the slowest device is slower than the middle one; 1 for a single device."""
    usually = [median(series) for series in found.same_work_s]
    if len(usually) < 2 or None in usually:
        return Quantity(1.0, 1.0, 1.0, f"{stamp}: one device, or none to compare")
    ratios = []
    for row in zip(*found.same_work_s, strict=False):
        kept = usable(row)
        if len(kept) == len(row):
            ratios.append(max(kept) / (median(kept) or max(kept)))
    value = quantity(ratios, f"{stamp}: the same product on each device")
    return value or Quantity(1.0, 1.0, 1.0, f"{stamp}: the devices could not be compared")


def architecture_of(name: str, capability: tuple[int, int]) -> str:
    """Return the nearest architecture with efficiencies in parts.toml."""
    words = name.replace("-", " ").split()
    named = next((part for word, part in _BY_NAME.items() if word in words), None)
    known = (*_BY_CAPABILITY, *_OLDER)
    return named or next(part for major, minor, part in known if capability >= (major, minor))


def _peaks(found: Measurements, stamp: str) -> dict[str, Quantity]:
    peaks = {}
    for number_format in ("float32", "tf32"):
        large = [t for t in found.operators if t.is_large and t.kind is Kind.MATMUL]
        best = _best(((t, t.flops) for t in large if t.number_format == number_format), stamp)
        if best is not None:
            peaks[number_format] = best
    if "float32" not in peaks:
        raise NothingMeasuredError(f"device.peak.float32: no matrix product was measured{_why(found, 'matmul')}")
    return peaks


def _bandwidth(found: Measurements, stamp: str) -> Quantity:
    best = _best(((t, t.bytes) for t in found.operators if t.is_large and t.kind not in FLOP_KINDS), stamp)
    if best is None:
        raise NothingMeasuredError(
            f"device.bandwidth: no copy in the device's memory was measured{_why(found, 'move')}"
        )
    return best


def _best(amounts: Iterable[tuple[TimedOperator, float]], stamp: str) -> Quantity | None:
    """Return the rate of the operator with the highest median."""
    found = [quantity(rates(amount, t.seconds), f"{stamp}: {t.kind} of {t.shape}") for t, amount in amounts]
    return max((each for each in found if each is not None), key=lambda each: each.mid, default=None)


def _why(found: Measurements, what: str) -> str:
    """Return the reason why an operator was not measured, where it is known."""
    reasons = [reason for name, reason in found.failures.items() if name.startswith(what)]
    return f": {reasons[0]}" if reasons else ""


def _factor(found: Measurements, stamp: str) -> Quantity:
    """Return the times of the same product on each device, relative to the first one's."""
    usually = [median(series) for series in found.same_work_s]
    if len(usually) < 2 or usually[0] is None:
        return Quantity(1.0, 1.0, 1.0, f"{stamp}: the first device's own numbers")
    ratios = sorted(each / usually[0] for each in usually if each is not None)
    middle = ratios[len(ratios) // 2]
    return Quantity(ratios[0], middle, ratios[-1], f"{stamp}: each device's time, relative to the first one's")


def _efficiency(shares: "_Shares", architecture: str, part: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "flop": {
            str(kind): entry(shares.of_flops(kind) or _relative(part["flop"], kind, Kind.MATMUL, architecture), "ratio")
            if kind in FLOP_KINDS
            else part["flop"][kind]
            for kind in Kind
        },
        "byte": {
            str(kind): entry(
                shares.of_bytes(kind) or _relative(part["byte"], kind, Kind.ELEMENTWISE, architecture), "ratio"
            )
            for kind in Kind
        },
    }


def _relative(part: Mapping[str, Any], kind: Kind, large: Kind, architecture: str) -> Quantity:
    """Return a share in parts.toml relative to the share of large operators there."""
    value, most = from_part(part[kind], "ratio"), from_part(part[large], "ratio").mid
    source = f"not measured: efficiency.{architecture} of dpbench/machines/parts.toml over its {large}: {value.source}"
    return capped(Quantity(value.low / most, value.mid / most, value.high / most, source), 1.0)


class _Shares:
    """Shares of the peaks, by kind of operator."""

    def __init__(
        self, found: Measurements, peaks: Mapping[str, Quantity], bandwidth: Quantity, gap: Quantity, stamp: str
    ) -> None:
        self._found, self._peaks, self._bandwidth, self._gap, self._stamp = found, peaks, bandwidth, gap, stamp
        element = self._measured_bytes(Kind.ELEMENTWISE)
        self._element_rate = bandwidth.mid * (element.mid if element is not None else 1.0)

    def of_flops(self, kind: Kind) -> Quantity | None:
        """Return the share that products of this kind reach; None if none was measured.

        The large ones count only where there are no others, because they reach the peak by definition.
        """
        timed = self._timed(kind)
        timed = [t for t in timed if not t.is_large] or timed
        values = [self._flop_share(t, seconds) for t in timed for seconds in usable(t.seconds)]
        return quantity(values, self._source(timed))

    def _timed(self, kind: Kind) -> list[TimedOperator]:
        return [t for t in self._found.operators if t.kind is kind and usable(t.seconds)]

    def _flop_share(self, timed: TimedOperator, seconds: float) -> float:
        peak = self._peaks.get(timed.number_format, self._peaks["float32"]).mid
        left_s = seconds - timed.bytes / self._element_rate - self._gap.mid
        return 1.0 if left_s <= 0 else _share(timed.flops / left_s / peak)

    def of_bytes(self, kind: Kind) -> Quantity | None:
        """Return the share that operators of this kind reach. Products have that of element-wise operators."""
        if kind not in FLOP_KINDS:
            return self._measured_bytes(kind)
        element = self._measured_bytes(Kind.ELEMENTWISE)
        if element is None:
            return None
        return Quantity(element.low, element.mid, element.high, f"as element-wise operators: {element.source}")

    def _measured_bytes(self, kind: Kind) -> Quantity | None:
        timed = self._timed(kind)
        values = [self._byte_share(t, seconds) for t in timed for seconds in usable(t.seconds)]
        return quantity(values, self._source(timed))

    def _byte_share(self, timed: TimedOperator, seconds: float) -> float:
        left_s = seconds - self._gap.mid
        return 1.0 if left_s <= 0 else _share(timed.bytes / left_s / self._bandwidth.mid)

    def _source(self, timed: Iterable[TimedOperator]) -> str:
        return f"{self._stamp}: {'; '.join(t.shape for t in timed)}"


def _share(value: float) -> float:
    return min(1.0, max(_LEAST_SHARE, value))
