"""The wrapper's cases that tier 0 counts, and what is counted beside each. Pure."""

from dataclasses import dataclass
from typing import Any

from dpbench.cases.case import Case
from dpbench.cases.counted_cases import checked_cases
from dpbench.cases.devices import format_devices
from dpbench.cases.names import Mode
from dpbench.cases.parameters import Value
from dpbench.cases.variants import VariantId, VariantName
from dpbench.processes.messages import CountJob

_BATCH, _LARGE_BATCH = 16, 1024
SIMULATED = tuple(f"sim:{i}" for i in range(4))
CPU = ("cpu",) * 4
_SMALL_BUCKETS: dict[str, Any] = {"bucket_bytes": 2048, "first_bucket_bytes": 1024}
"""Five buckets for the 11 KiB of ``mlp/tiny``."""

MORE_STEPS = 100
"""Further steps in which the kept memory is read. In the first of them caches fill: half as fast after each hundred."""


def gate_cases() -> tuple[Case, ...]:
    """Return the cases, each with the tuned wrapper."""
    return (
        _case("mlp/tiny", SIMULATED, **_SMALL_BUCKETS),
        _case("transformer/tiny", SIMULATED, Mode.INFER, dispatch="auto"),
        _case("transformer/tiny", CPU, Mode.INFER),
        _case("mlp/tiny", SIMULATED, accumulate=2),
        _case("mlp/tiny", SIMULATED, dispatch="interleaved"),
        _case("mlp/tiny", SIMULATED, batch=_LARGE_BATCH),
        _case("mlp/tiny", CPU, batch=_LARGE_BATCH),
        _case("mlp/tiny", SIMULATED, loss="replicas"),
        pieces_case(),
        star_case(),
        _case("mlp/tiny", CPU, dispatch="auto"),
        threads_case(),
        _case("mlp/tiny", CPU, dispatch="threads"),
    )


def stepping_cases() -> tuple[Case, ...]:
    """Return the cases after which further steps are taken. All are counted anyway."""
    return (_case("mlp/tiny", CPU), choice_case())


def choice_case() -> Case:
    """Return the case beside which other uses and the choices of the default dispatch are counted."""
    return _case("transformer/tiny", CPU, Mode.INFER)


def pieces_case() -> Case:
    """Return the case whose buckets are so large that lanes pass them on in pieces."""
    return _case("embedding/small", SIMULATED, route="chain")


def star_case() -> Case:
    """Return the case whose lanes all get their weights from the first."""
    return _case("embedding/small", SIMULATED, route="star")


def threads_case() -> Case:
    """Return the case whose default dispatch has chosen threads. The others have chosen the sequence."""
    return _case("mlp/tiny", CPU, Mode.INFER, dispatch="auto")


def route_cases() -> tuple[Case, ...]:
    """Return the cases whose order of copies and turns of lanes are counted too."""
    interleaved, buckets = (
        _case("mlp/tiny", SIMULATED, dispatch="interleaved"),
        _case("mlp/tiny", SIMULATED, **_SMALL_BUCKETS),
    )
    return (pieces_case(), star_case(), interleaved, buckets)


def _case(
    workload: str, devices: tuple[str, ...], mode: Mode = Mode.TRAIN, batch: int = _BATCH, **parameters: Value
) -> Case:
    variant = VariantId(VariantName.TUNED).with_parameters(**parameters)
    return Case(variant=variant, workload=workload, batch=batch, devices=devices, mode=mode, threads=1)


def wrapper_cases() -> tuple[Case, ...]:
    """Return all cases of the wrapper."""
    return (*plain_cases(), *growth_cases())


def plain_cases() -> tuple[Case, ...]:
    """Return the wrapper's cases whose counters are compared one by one. Pure."""
    return (*(case for case in checked_cases() if case.variant.name is VariantName.TUNED), *gate_cases())


@dataclass(frozen=True)
class Doubling:
    """Two cases, the second with twice as much of what `name` says."""

    name: str
    small: Case
    large: Case


def doublings() -> tuple[Doubling, ...]:
    """Return what is doubled. On simulated devices the host's calls are counted, on CPU lanes the Python calls."""
    return (
        Doubling("parameters and modules sim", _case("many/tiny", SIMULATED[:2]), _case("many/small", SIMULATED[:2])),
        Doubling("parameters and modules cpu", _case("many/tiny", CPU[:2]), _case("many/small", CPU[:2])),
        Doubling("lanes sim", _case("mlp/tiny", SIMULATED[:2]), _case("mlp/tiny", SIMULATED)),
        Doubling("lanes cpu", _case("mlp/tiny", CPU[:2]), _case("mlp/tiny", CPU)),
    )


def growth_cases() -> tuple[Case, ...]:
    """Return the cases whose counters are compared by their growth alone."""
    return tuple(dict.fromkeys(case for each in doublings() for case in (each.small, each.large)))


def job_of(case: Case) -> CountJob:
    """Return the job of a case.

    On CPU lanes of some cases, further steps and other uses of the wrapper are counted. Large models on simulated
    devices are counted by shapes alone.
    """
    return CountJob(
        case=case,
        thorough=True,
        more_steps=MORE_STEPS if case in stepping_cases() else 0,
        uses=case == choice_case(),
        routes=case in route_cases(),
        way="threads" if case == threads_case() else "sequence",
        numbers=case not in (pieces_case(), star_case()),
    )


def name_of(case: Case) -> str:
    """The name of a case of the wrapper in the judgement, such as ``counts mlp/tiny cpu*4``.

    A mode, another batch, and parameters of the variant follow the devices if they are not the usual ones.
    """
    unusual = [str(case.mode)] if case.mode is not Mode.TRAIN else []
    unusual += [f"batch={case.batch}"] if case.batch != _BATCH else []
    parameters = str(case.variant).removeprefix(VariantName.TUNED)
    return " ".join(
        ["counts", case.workload, format_devices(case.devices), *unusual, *([parameters] if parameters else [])]
    )
