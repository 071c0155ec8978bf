"""Telemetry of GPUs over the window in which samples are taken; results/records.md has units and sources."""

from dataclasses import fields

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass as checked_dataclass
from pydantic_core import PydanticCustomError

from dpbench.text.validated import Count, Real

_THROTTLED_SHARE = 0.01


@checked_dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid"))
class Reading:
    """A value, or the reason why there is none; never both."""

    value: Real | None = None
    reason: str | None = None
    source: str | None = None
    span_s: Real | None = None

    def __post_init__(self) -> None:
        if (self.value is None) is (self.reason is None):
            raise PydanticCustomError("reading", "allowed: a value, or a reason and no value")


@checked_dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid"))
class DeviceTelemetry:
    uuid: str
    window_s: Real
    sm_busy_percent: Reading
    dram_bandwidth_percent: Reading
    kernel_running_percent: Reading
    memory_in_use_percent: Reading
    power_w: Reading
    sm_clock_mhz: Reading
    memory_clock_mhz: Reading
    energy_per_step_j: Reading
    pcie_sent_bytes_per_step: Reading
    pcie_received_bytes_per_step: Reading
    nvlink_sent_bytes_per_step: Reading
    nvlink_received_bytes_per_step: Reading
    throttled_s: dict[str, Reading]

    @property
    def is_throttled(self) -> bool | None:
        """None if no cause is reported. Over 1 % of the window is throttled."""
        known_s = [cause.value for cause in self.throttled_s.values() if cause.value is not None]
        return max(known_s) > _THROTTLED_SHARE * self.window_s if known_s else None


@checked_dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid"))
class SkippedSteps:
    """Of `steps` steps, GradScaler skipped the optimizer's step in `skipped`."""

    skipped: Count
    steps: Count


TELEMETRY = tuple(field.name for field in fields(DeviceTelemetry) if field.type is Reading)
