"""Each device over a case's rounds: telemetry and peaks of memory."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Protocol

from dpbench.analysis.over_rounds import ABSENT, OverRounds, over_rounds
from dpbench.records.readings import TELEMETRY, DeviceTelemetry, Reading

LINKS = ("pcie", "nvlink")
PEAKS = ("peak_device_bytes", "peak_reserved_bytes")
_BUSYNESS = ("sm_busy_percent", "kernel_running_percent", "power_w", "energy_per_step_j", "peak_device_bytes")
_ABSENT = Reading(reason=ABSENT)


class WindowReadings(Protocol):
    """Readings by device; None in an older schema."""

    @property
    def telemetry(self) -> Mapping[str, DeviceTelemetry | str] | None: ...

    @property
    def peak_device_bytes(self) -> Mapping[str, Reading] | None: ...

    @property
    def peak_reserved_bytes(self) -> Mapping[str, Reading] | None: ...


@dataclass(frozen=True)
class DeviceSummary:
    """`figures` has `TELEMETRY`, `PEAKS`, `window_s`; `pcie_bytes_per_step` and `nvlink_bytes_per_step`, sent and
    received together; `throttled_percent`, the share of the window in which the most frequent cause lowered the clocks.
    """

    device: str
    uuids: tuple[str, ...]
    figures: Mapping[str, OverRounds]
    throttled_s: Mapping[str, OverRounds]

    def value(self, name: str) -> float | None:
        return self.figures[name].value


def summarise_devices(rounds: Sequence[WindowReadings]) -> tuple[DeviceSummary, ...]:
    """In order of appearance."""
    read = [part for one in rounds for part in (one.telemetry, one.peak_device_bytes, one.peak_reserved_bytes) if part]
    return tuple(_summary(device, rounds) for device in dict.fromkeys(chain.from_iterable(read)))


def busiest_and_idlest(devices: Sequence[DeviceSummary]) -> tuple[DeviceSummary, ...]:
    """The two, or the only one, by the first of `_BUSYNESS` that any device has."""
    measure = next((name for name in _BUSYNESS if any(device.value(name) is not None for device in devices)), None)
    if len(devices) < 2 or measure is None:
        return tuple(devices[:1])
    known_values = [(value, device) for device in devices if (value := device.value(measure)) is not None]
    busiest = max(known_values, key=lambda pair: pair[0])[1]
    idlest = min(reversed(known_values), key=lambda pair: pair[0])[1]
    return (busiest,) if idlest is busiest else (busiest, idlest)


def _summary(device: str, rounds: Sequence[WindowReadings]) -> DeviceSummary:
    telemetry = [_telemetry(device, one) for one in rounds]

    def over(read: Callable[[DeviceTelemetry], Reading]) -> OverRounds:
        return over_rounds([reading if isinstance(reading, Reading) else read(reading) for reading in telemetry])

    windows = [window for window in telemetry if isinstance(window, DeviceTelemetry)]
    causes = dict.fromkeys(cause for window in windows for cause in window.throttled_s)
    return DeviceSummary(
        device=device,
        uuids=tuple(dict.fromkeys(window.uuid for window in windows)),
        figures={
            **{name: over(attrgetter(name)) for name in TELEMETRY},
            "window_s": over(lambda window: Reading(value=window.window_s)),
            **{f"{link}_bytes_per_step": over(partial(_traffic, link)) for link in LINKS},
            "throttled_percent": over(_throttled_percent),
            **{
                name: over_rounds([(getattr(one, name) or {}).get(device, _ABSENT) for one in rounds]) for name in PEAKS
            },
        },
        throttled_s={
            cause: over_rounds([window.throttled_s.get(cause, _ABSENT) for window in windows]) for cause in causes
        },
    )


def _telemetry(device: str, one: WindowReadings) -> DeviceTelemetry | Reading:
    telemetry = (one.telemetry or {}).get(device, ABSENT)
    return Reading(reason=telemetry) if isinstance(telemetry, str) else telemetry


def _traffic(link: str, telemetry: DeviceTelemetry) -> Reading:
    """Unknown if one of the two is."""
    parts: list[Reading] = [getattr(telemetry, f"{link}_{way}_bytes_per_step") for way in ("sent", "received")]
    both = over_rounds(parts)
    if both.reason is not None:
        return Reading(reason=both.reason)
    return Reading(value=sum(part.value or 0.0 for part in parts), source=both.source)


def _throttled_percent(telemetry: DeviceTelemetry) -> Reading:
    causes = list(telemetry.throttled_s.values())
    known_s = [cause.value for cause in causes if cause.value is not None]
    if known_s and telemetry.window_s > 0:
        return Reading(value=100 * max(known_s) / telemetry.window_s)
    return Reading(reason=over_rounds(causes).reason or "the GPU reports no cause")
