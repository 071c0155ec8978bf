"""Records made by hand."""

from collections.abc import Sequence

from dpbench.cases.case import Case
from dpbench.cases.names import parse_devices
from dpbench.cases.variants import VariantId
from dpbench.judge.least_samples import are_enough, least_seconds
from dpbench.records.readings import TELEMETRY, DeviceTelemetry, Reading
from dpbench.records.record import Environment, Metrics, Outcome, Record

ENVIRONMENT = Environment(
    hostname="here", os="Linux", python="3.11.9", torch="2.13.0", cpu_model="a CPU", cores=2, dpbench="0.1.0"
)
METRICS = Metrics(threads_per_lane=1, warmup_steps=5, stopped_by="interval")


def case(variant: str = "tuned", devices: str = "cpu*2", batch: int = 64, workload: str = "mlp/tiny") -> Case:
    return Case(variant=VariantId(variant), workload=workload, batch=batch, devices=parse_devices(devices), threads=2)


def ok(case: Case, round: int, samples_s: Sequence[float] = (0.1, 0.1), **fields: object) -> Record:
    """Return a record with these samples, repeated until they are enough to be ranked."""
    times = 1
    while not are_enough(tuple(samples_s) * times, least_seconds(case.devices)):
        times *= 2
    return thin(case, round, tuple(samples_s) * times, **fields)


def thin(case: Case, round: int, samples_s: Sequence[float], **fields: object) -> Record:
    """Return a record with these samples alone."""
    return _record(
        case=case, round=round, samples_s=tuple(samples_s), outcome=Outcome.OK, metrics=METRICS, reason=None, **fields
    )


def failed(case: Case, round: int, outcome: str, reason: str) -> Record:
    return _record(case=case, round=round, outcome=Outcome(outcome), reason=reason)


def _record(**fields: object) -> Record:
    usual = {"run": "a run", "started_at": "2025-01-01T00:00:00Z", "environment": ENVIRONMENT}
    return Record.model_validate({**usual, **fields})


def telemetry(busy_percent: float, **changes: object) -> DeviceTelemetry:
    """Return a GPU's telemetry over 2 s. All readings are known; `changes` replaces some."""
    readings = dict.fromkeys(TELEMETRY, Reading(value=busy_percent))
    throttled = {"power": Reading(value=0.0), "thermal": Reading(value=0.5)}
    usual = {"uuid": "GPU-aa", "window_s": 2.0, "throttled_s": throttled}
    return DeviceTelemetry(**{**readings, **usual, **changes})
