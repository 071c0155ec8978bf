"""Records: what one child measured, as one line of JSON."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from dpbench.cases.case import Case
from dpbench.judge.least_samples import are_enough, least_seconds
from dpbench.records.readings import DeviceTelemetry, Reading, SkippedSteps
from dpbench.records.row import Row
from dpbench.text.validated import Count, Frozen, Moment, Positive, Real

_LOST_GPU = (
    "GPU is lost",  # NVML_ERROR_GPU_IS_LOST
    "GPU requires restart",  # NVML_ERROR_RESET_REQUIRED
    "fallen off the bus",  # the driver's Xid 79
    "no CUDA-capable device is detected",  # cudaErrorNoDevice; there was a GPU when the case was planned
    "uncorrectable ECC error encountered",  # cudaErrorECCUncorrectable
    "uncorrectable NVLink error detected",  # cudaErrorNvlinkUncorrectable
)


def line_on_lost_gpu(text: str) -> str | None:
    """The first line on a lost GPU, in the words of CUDA, NVML and the kernel; or None."""
    return next((line.strip() for line in text.splitlines() if any(words in line for words in _LOST_GPU)), None)


Commit = Annotated[str, Field(pattern="^[0-9a-f]{7,64}$")]
"""A hash: nothing else may reach git's command line from a file."""
_PYTHON = r"^\d{1,3}(\.\d{1,3}){1,2}[\w+.-]{0,40}$"
"""It becomes a part of file names."""


class Outcome(StrEnum):
    OK = "ok"
    OUT_OF_MEMORY = "out_of_memory"
    TIME_OUT = "time_out"
    CRASHED = "crashed"
    WRONG_RESULT = "wrong_result"
    LOST_GPU = "lost_gpu"
    NOT_SETTLED = "not_settled"
    SKIPPED = "skipped"


class Environment(Frozen):
    """The machine and the code, as the process sees them, which must be equal before two records are compared.

    `affinity` are the cores that may be used, as in ``0-3,8``. `cpu_limit` (in cores) and `memory_limit_bytes` are the
    container's, None without a limit. `gpus` and the tuples named after it are in torch's order; `gpu_links` has an
    entry for each pair, as in ``0-1 NV18``. None is not reported.
    """

    hostname: str
    os: str
    python: str = Field(pattern=_PYTHON)
    torch: str
    cpu_model: str
    cores: Count
    gil: bool | None = None
    affinity: str | None = None
    cpu_governor: str | None = None
    cpu_limit: Real | None = None
    memory_limit_bytes: Count | None = None
    gpus: tuple[str, ...] = ()
    gpu_clocks: tuple[str | None, ...] = ()
    gpu_power_limits_w: tuple[Real | None, ...] = ()
    gpu_links: tuple[str, ...] = ()
    driver: str | None = None
    cuda: str | None = None
    nccl: str | None = None
    dpbench: str
    commit: Commit | None = None
    dirty: bool | None = None

    def machine(self, *, of_any_name: bool = False) -> "Environment":
        """The environment without the code: times are of the same machine if all of this is equal.

        Each container on one kind of machine has another name, so machines `of_any_name` are without theirs.
        """
        return self.model_copy(
            update={"dpbench": "", "commit": None, "dirty": None, **({"hostname": ""} if of_any_name else {})}
        )


def differences(environments: Sequence[Environment]) -> dict[str, tuple[object, ...]]:
    """Unequal fields, with values in order of appearance."""
    values = {
        name: tuple(dict.fromkeys(getattr(environment, name) for environment in environments))
        for name in Environment.model_fields
    }
    return {name: different for name, different in values.items() if len(different) > 1}


class Metrics(Frozen):
    """None is a fact that does not apply to the case. results/records.md has units and sources.

    - `stopped_by` is ``interval`` or ``budget``.
    - `stages_s` has the seconds of the first process beside its samples: start, model, warm-up, phases, fairness.
    - `compile_s` is the wall-clock time in which torch compiled, before the samples; of ranks, the longest.
    - `skew_s` has, per sample, the slowest rank's time minus the fastest's. `rank_lag_s` has, per rank, the median of
      its sample's time minus the fastest's. Both are None for one process.
    - `phases_s` and `phases_by_rank_s` are of steps beside the samples; the first is that of rank 0.
    - `relative_error` is the distance of the gradients (`infer`: outputs) from those of the plain module, run chunk by
      chunk.
    - `rank_link_mbit_per_s` has None where the system does not know the speed.
    """

    threads_per_lane: Count
    warmup_steps: Count
    stopped_by: str
    compile_s: Real | None = None
    stages_s: dict[str, Real] | None = None
    skew_s: tuple[Real, ...] | None = None
    rank_lag_s: tuple[Real, ...] | None = None
    phases_s: dict[str, Real | str] | None = None
    phases_by_rank_s: tuple[dict[str, Real | str], ...] | None = None
    rank_machines: tuple[str, ...] | None = None
    network_interface: str | None = None
    rank_link_mbit_per_s: tuple[Count | None, ...] | None = None
    relative_error: float | None = None
    loss_first: float | None = None
    loss_last: float | None = None
    skipped_steps: SkippedSteps | None = None
    peak_rss_bytes: Count | None = None
    peak_device_bytes: dict[str, Reading] | None = None
    peak_reserved_bytes: dict[str, Reading] | None = None
    telemetry: dict[str, DeviceTelemetry | str] | None = None

    @property
    def is_throttled(self) -> bool | None:
        """None if no device reports it."""
        devices = [device for device in (self.telemetry or {}).values() if isinstance(device, DeviceTelemetry)]
        known_states = [throttled for device in devices if (throttled := device.is_throttled) is not None]
        return any(known_states) if known_states else None


class Record(Row):
    """`samples_s` has the seconds of every sample, of `steps_per_sample` steps, in order."""

    kind: Literal["record"] = "record"
    run: str
    case: Case
    round: Count
    started_at: Moment
    outcome: Outcome
    reason: str | None = None
    samples_s: tuple[Positive, ...] = ()
    environment: Environment | None = None
    metrics: Metrics | None = None

    @model_validator(mode="after")
    def _only_ok_has_numbers(self) -> Self:
        if self.outcome is Outcome.OK and not (self.samples_s and self.metrics and self.environment):
            raise ValueError("outcome ok needs samples_s, metrics and environment")
        if self.outcome is not Outcome.OK and (self.samples_s or self.reason is None):
            raise ValueError(f"outcome {self.outcome} needs a reason and has no samples_s")
        return self

    @property
    def key(self) -> tuple[str, int]:
        return (self.case.id, self.round)

    @property
    def has_enough_samples(self) -> bool:
        """By `judge/least_samples.py`; False for a failed record."""
        return bool(self.samples_s) and are_enough(self.samples_s, least_seconds(self.case.devices))

    @property
    def step_times_s(self) -> tuple[float, ...]:
        return tuple(sample_s / self.case.steps_per_sample for sample_s in self.samples_s)

    def to_json(self) -> dict[str, Any]:
        """The fields with the case's id, for readers without dpbench."""
        data = super().to_json()
        data["case"]["id"] = self.case.id
        return data

    @model_validator(mode="before")
    @classmethod
    def _without_id(cls, fields: Any) -> Any:
        case = fields.get("case") if isinstance(fields, dict) else None
        if not isinstance(case, dict):
            return fields
        return {**fields, "case": {name: value for name, value in case.items() if name != "id"}}
