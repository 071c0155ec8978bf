"""Records of made-up machines for pages: several GPUs, a few CPU lanes, hostile texts."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count, product
from math import ceil
from random import Random

from dpbench.cases.case import Case
from dpbench.cases.names import are_shared, parse_devices
from dpbench.cases.variants import VariantId
from dpbench.judge.least_samples import least_seconds, seconds_of_least
from dpbench.records.readings import TELEMETRY, DeviceTelemetry, Reading
from dpbench.records.record import Environment, Metrics, Outcome, Record

GPUS = Environment(
    hostname="gpu-host",
    os="Linux 6.8",
    python="3.12.4",
    torch="2.13.0",
    cpu_model="a CPU",
    cores=64,
    gpus=("NVIDIA H100",) * 8,
    driver="570.1",
    cuda="12.8",
    nccl="2.27",
    dpbench="0.1.0",
    commit="0123456789abcdef",
    dirty=False,
)
LANES = Environment(
    hostname="laptop", os="Linux 6.8", python="3.12.4", torch="2.13.0+cpu", cpu_model="a CPU", cores=8, dpbench="0.1.0"
)
COSTS = {"single": 0.0, "torch_dp": 1.0, "naive": 1.05, "floor": 0.02, "tuned": 0.22, "ddp": 0.2}
"""The seconds of a variant beside its computation, over those of torch_dp."""
ABLATIONS = {
    "tuned[cache_replicas=false]": 0.55,
    "tuned[coalesce=false]": 0.4,
    "tuned[overlap_broadcast=false]": 0.3,
    "tuned[overlap_reduce=false]": 0.27,
    "tuned[overlap_copies=false]": 0.225,
    "tuned[dispatch=threads]": 0.26,
}
_BEGAN = datetime(2026, 11, 20, 8, tzinfo=UTC)


def gpu_records(
    batches: Sequence[int] = (64, 256), counts: Sequence[int] = (2, 4, 8), rounds: int = 5, seed: int = 0
) -> list[Record]:
    """Return a sweep over GPUs. On one GPU alone the batch of each share was measured too."""
    random, clock = Random(seed), count()
    shares = {batch // n for batch, n in product(batches, counts)} | set(batches)
    cases = [made_case("single", "cuda:0", share) for share in sorted(shares)]
    for batch, devices in product(batches, counts):
        variants = ["torch_dp", "tuned", "ddp", *(ABLATIONS if devices == max(counts) else ())]
        cases += [made_case(variant, f"cuda*{devices}", batch) for variant in variants]
    return [_record(case, number, GPUS, random, next(clock)) for number in range(rounds) for case in cases]


def lane_records(rounds: int = 5, lanes: Sequence[int] = (2,), workload: str = "mlp/small") -> list[Record]:
    """Return what `dpbench compare` measures without a GPU."""
    random, clock = Random(1), count()
    cases = [made_case("single", "cpu", 64, workload)]
    cases += [
        made_case(variant, f"cpu*{n}", 64, workload) for n in lanes for variant in ("naive", "floor", "tuned", "ddp")
    ]
    return [_record(case, number, LANES, random, next(clock)) for number in range(rounds) for case in cases]


def made_case(variant: str, devices: str, batch: int, workload: str = "convnet/small") -> Case:
    return Case(variant=VariantId(variant), workload=workload, batch=batch, devices=parse_devices(devices), threads=2)


def failed_record(variant: str, reason: str, outcome: Outcome = Outcome.OUT_OF_MEMORY, round: int = 0) -> Record:
    return Record(
        run="sweep-made",
        case=made_case(variant, "cuda*8", 256),
        round=round,
        started_at=_BEGAN.isoformat(),
        outcome=outcome,
        reason=reason,
    )


def _record(case: Case, round: int, environment: Environment, random: Random, number: int) -> Record:
    step_s, parts = _step(case)
    noise = random.gauss(0, 0.02)
    samples_s = tuple(step_s * (1 + noise + random.gauss(0, 0.01)) for _ in range(8))
    enough = ceil(1.1 * seconds_of_least(samples_s, least_seconds(case.devices)) / sum(samples_s))
    return Record(
        run="sweep-made",
        case=case,
        round=round,
        started_at=(_BEGAN + timedelta(seconds=20 * number)).isoformat(),
        outcome=Outcome.OK,
        samples_s=samples_s * enough,
        environment=environment,
        metrics=_metrics(case, parts, random),
    )


def _step(case: Case) -> tuple[float, dict[str, float]]:
    """Return the seconds of a step and of its phases."""
    devices = len(case.devices)
    cost = {**COSTS, **ABLATIONS}[str(case.variant)]
    compute_s = 0.002 + 0.0004 * case.batch / (1 if are_shared(case.devices) else devices)
    move_s = 0 if str(case.variant) == "single" else 0.02 * cost * (1 + 0.1 * devices)
    parts = {
        "forward": 0.35 * compute_s + 0.7 * move_s,
        "scatter": 0.1 * move_s,
        "replicate": 0.5 * move_s,
        "parallel_apply": 0.3 * compute_s,
        "gather": 0.1 * move_s,
        "loss": 0.02 * compute_s,
        "backward": 0.6 * compute_s + 0.3 * move_s,
        "reduce": 0.3 * move_s,
        "optimiser": 0.05 * compute_s,
    }
    return compute_s + move_s, parts


def _metrics(case: Case, parts: dict[str, float], random: Random) -> Metrics:
    gpus = [gpu for gpu in dict.fromkeys(case.devices) if gpu.startswith("cuda")]
    whole = ("forward", "backward", "optimiser")
    own = {
        name: value if name in whole or str(case.variant) not in ("single", "ddp") else "the variant has no such method"
        for name, value in parts.items()
    }
    return Metrics(
        threads_per_lane=1,
        warmup_steps=5,
        stopped_by="interval",
        phases_s=dict(own),
        peak_rss_bytes=(900 << 20) * (len(case.devices) if str(case.variant) == "ddp" else 1),
        peak_device_bytes={gpu: Reading(value=float((400 + 2 * case.batch) << 20)) for gpu in gpus} or None,
        peak_reserved_bytes={gpu: Reading(value=float((600 + 2 * case.batch) << 20)) for gpu in gpus} or None,
        telemetry={gpu: _telemetry(place, random) for place, gpu in enumerate(gpus)} or None,
    )


def _telemetry(place: int, random: Random) -> DeviceTelemetry:
    busy = 80 - 5 * place + random.gauss(0, 2)
    values = dict(_readings(busy, place))
    return DeviceTelemetry(uuid=f"GPU-{place}", window_s=2.0, throttled_s={"power": Reading(value=0.0)}, **values)


def _readings(busy: float, place: int) -> Iterator[tuple[str, Reading]]:
    known = {"power_w": 4 * busy, "sm_clock_mhz": 1900 - busy, "memory_clock_mhz": 2600.0, "energy_per_step_j": 3.0}
    for name in TELEMETRY:
        size = 3e7 if "bytes" in name and place else 9e7 if "bytes" in name else busy
        yield name, Reading(value=known.get(name, size))


HOSTILE = (
    "</script><script>window.injected=1</script>",
    "<img src=x onerror=window.injected=1>",
    "\x1b]0;title\x07\x1b[31mred",
    "\u202eright to left",
    "=HYPERLINK(1)",
    "'\"><b>&amp;{{7*7}}",
    "${alert(1)} datum.value",
)


def hostile_records() -> list[Record]:
    """Return records whose texts are hostile wherever a record may have a text."""
    environment = LANES.model_copy(
        update={
            "hostname": HOSTILE[0] + HOSTILE[2] + HOSTILE[3],
            "os": HOSTILE[1],
            "cpu_model": HOSTILE[5],
            "driver": HOSTILE[2],
        }
    )
    fine = lane_records(rounds=2, workload=HOSTILE[0] + HOSTILE[1])
    records = [record.model_copy(update={"environment": environment, "run": HOSTILE[0]}) for record in fine]
    cpu = {HOSTILE[0]: Reading(value=1e9), HOSTILE[3]: Reading(value=2e9)}
    phases = {**(records[-1].metrics.phases_s or {}), HOSTILE[0]: 0.1, HOSTILE[6]: HOSTILE[1]}
    metrics = records[-1].metrics.model_copy(update={"peak_device_bytes": cpu, "phases_s": phases})
    failed = [
        records[0].model_copy(
            update={
                "case": made_case("naive", "cpu*4", 64, f"={HOSTILE[5]}"),
                "outcome": Outcome.CRASHED,
                "reason": text,
                "round": number,
                "samples_s": (),
                "metrics": None,
            }
        )
        for number, text in enumerate(HOSTILE)
    ]
    return [*records[:-1], records[-1].model_copy(update={"metrics": metrics}), *failed]
