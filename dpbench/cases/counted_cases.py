"""Which cases are counted, and on which devices.

sim*n   operators, copies, floating-point operations, memory, dependencies: every variant that has one process
cpu*n   Python calls of the same variants; collectives of `ddp`, in its real processes
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from dpbench.cases.case import Case
from dpbench.cases.names import Dtype, Size, format_devices
from dpbench.cases.plan import Plan, Skip, check_items
from dpbench.cases.spec import Spec
from dpbench.cases.supports import why_not_accumulated, why_not_compiled, why_rank_unsupported
from dpbench.cases.variants import VariantId, VariantName
from dpbench.errors import WrongInputError

MAX_SIMULATED = 64
"""The most devices that the simulator can start."""

DEFAULT_VARIANTS = tuple(map(VariantId, (VariantName.TORCH_DP, VariantName.NAIVE, VariantName.TUNED)))
_QUICK_SIZES = (f"/{Size.TINY}", "mlp/small")
_CHECKED_WORKLOADS = ("mlp/tiny", "convnet/tiny", "transformer/tiny", "embedding/tiny", "embedding_sparse/tiny")
_CHECKED_RANKS = ("mlp/tiny", "convnet/tiny")


def plan_counts(spec: Spec) -> Plan:
    """A case on simulated devices is also counted on as many CPU lanes. Raise WrongInputError."""
    cases: dict[Case, None] = {}
    skipped: list[Skip] = []
    for devices in spec.devices or (_simulated(4),):
        _check(devices, min(spec.batch))
        for workload, batch, dtype in product(spec.workloads, spec.batch, spec.dtypes):
            for variant in spec.variants:
                places = _places(devices) if variant.compile_mode is None else (devices,)
                candidates = [_case(variant, workload, batch, place, dtype) for place in places]
                reasons = {case: _why_unsupported(case) for case in candidates}
                counted = [case for case, reason in reasons.items() if reason is None]
                cases.update(dict.fromkeys(counted))
                if not counted:
                    skipped.append(Skip(candidates[-1], str(reasons[candidates[-1]])))
    return Plan(tuple(cases), tuple(skipped))


def plan_recording(spec: Spec) -> Plan:
    """Raise WrongInputError unless one case is on simulated devices."""
    cases = tuple(case for case in plan_counts(spec).cases if _is_simulated(case.devices))
    if len(cases) != 1:
        raise WrongInputError(
            f"events: {len(cases)} cases on simulated devices; allowed: one variant, workload, batch and sim*n"
        )
    return Plan(cases, ())


def plan_beside(spec: Spec, lanes: Iterable[tuple[str, ...]]) -> Plan:
    """The default variants on as many simulated devices as lanes are measured.

    Empty for a single lane, and for sizes that take simulated devices longer than seconds.
    """
    counted = {variant.name for variant in DEFAULT_VARIANTS}
    variants = tuple(
        sorted((variant for variant in spec.variants if variant.name in counted), key=lambda variant: variant.order)
    )
    counts = dict.fromkeys(len(devices) for devices in lanes if 1 < len(devices) <= min(spec.batch))
    workloads = tuple(name for name in spec.workloads if name.endswith(_QUICK_SIZES))
    if not (variants and counts and workloads):
        return Plan((), ())
    devices = tuple(map(_simulated, counts))
    return plan_counts(spec.model_copy(update={"variants": variants, "workloads": workloads, "devices": devices}))


def checked_cases() -> tuple[Case, ...]:
    """Their counts are committed as expectations."""
    return tuple(_checked())


def _checked() -> Iterator[Case]:
    for workload, variant in product(_CHECKED_WORKLOADS, DEFAULT_VARIANTS):
        for devices in _places(_simulated(4)):
            case = _case(variant, workload, 16, devices)
            if _why_unsupported(case) is None:
                yield case
    for workload in _CHECKED_RANKS:
        yield _case(VariantId(VariantName.DDP), workload, 16, ("cpu", "cpu"))


def _simulated(count: int) -> tuple[str, ...]:
    return tuple(f"sim:{i}" for i in range(count))


def _places(devices: tuple[str, ...]) -> Sequence[tuple[str, ...]]:
    return (devices, ("cpu",) * len(devices)) if _is_simulated(devices) else (devices,)


def _is_simulated(devices: tuple[str, ...]) -> bool:
    return devices[0].startswith("sim:")


def _case(
    variant: VariantId, workload: str, batch: int, devices: tuple[str, ...], dtype: Dtype = Dtype.FLOAT32
) -> Case:
    lanes = devices[:1] if variant.name is VariantName.SINGLE else devices
    return Case(variant=variant, workload=workload, batch=batch, devices=lanes, threads=1, dtype=dtype)


def _why_unsupported(case: Case) -> str | None:
    if reason := why_not_compiled(case):
        return reason
    if case.variant.name is VariantName.TORCH_DP and not _is_simulated(case.devices):
        return "torch.nn.DataParallel has no CPU lanes; allowed: sim*n"
    if case.variant.is_per_rank:
        if _is_simulated(case.devices):
            return f"{case.variant.name} is counted in real processes; allowed: cpu*n"
        return why_rank_unsupported(case)
    if case.variant.takes_nccl_route:
        return "route nccl needs CUDA devices, which have no exact counts; allowed: other routes"
    return why_not_accumulated(case)


def _check(devices: tuple[str, ...], smallest_batch: int) -> None:
    text = format_devices(devices)
    kinds = {device.partition(":")[0] for device in devices}
    if kinds not in ({"sim"}, {"cpu"}):
        raise WrongInputError(f"devices: {text!r} has no exact counts; allowed: sim*n, or cpu*n")
    highest = max((int(device.partition(":")[2]) for device in devices if device != "cpu"), default=0)
    if highest >= MAX_SIMULATED:
        raise WrongInputError(
            f"devices: 'sim:{highest}' is more than the simulator can do; allowed: sim:0 to sim:{MAX_SIMULATED - 1}"
        )
    check_items(text, len(devices), smallest_batch)
