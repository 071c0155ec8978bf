"""The cases that tier 0 counts, of the wrapper and of the user, and what is counted beside each. Pure.

Beside the cases of `dpbench counts --check` the gate counts these of the wrapper:

    buckets       small buckets, so that a small model has several: the order and the overlap of their sums show
    pieces        buckets so large that lanes pass them on in pieces; shapes alone
    modes         a forward without gradients, accumulation, the loss in the replicas
    large batch   a path that is taken above some number of items
    more steps    a hundred further ones: the memory that each keeps, what few of them do, what late ones do more
    routes        the star, beside the chain that the other cases take
    dispatch      the default dispatch after it has chosen, in sequence and on threads; threads from the start
    uses          what no step has: a thousand forwards, callers at once (uses.py), hooks, autocast, many inputs, copies
                  (busy.py), on six lanes and on as many simulated devices
    start         modules that the import adds, the construction, the first forward
    choices       which way the default dispatch chooses
    order         copies that wait for each other, turns of lanes, the host's calls before the last lane begins
    doublings     twice the parameters or the lanes: compared by what that adds to each counter
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpbench.cases.case import Case
from dpbench.cases.counted_cases import checked_cases
from dpbench.cases.names import Mode, borrowed, format_devices, is_factory
from dpbench.cases.parameters import Value
from dpbench.cases.variants import VariantId, VariantName
from dpbench.engine.messages import CountJob
from dpbench.gate.settings import Benchmark

_BATCH, _LARGE_BATCH = 16, 1024
SIMULATED = tuple(f"sim:{i}" for i in range(4))
_MANY_SIMULATED = tuple(f"sim:{i}" for i in range(6))
CPU = ("cpu",) * 4
_SMALL_BUCKETS: dict[str, Any] = {"bucket_bytes": 2048, "first_bucket_bytes": 1024}
"""Five buckets for the 11 KiB of ``mlp/tiny``."""

_USERS_LANES = ("cpu", "cpu")
"""For a benchmark that leaves its devices to the machine: its counts then do not depend on the machine."""

MORE_STEPS = 100
"""In the first of them caches fill: half as fast after each hundred."""


def counted_cases(benchmarks: Sequence[Benchmark], *, of_the_wrapper: bool) -> dict[str, Case]:
    """By name: those of the wrapper, unless a commit has none, and the user's own steps.

    The user's steps are the benchmarks whose workload is a factory, on simulated devices and on CPU lanes. A call of a
    borrowed benchmark is counted by itself.
    """
    wrapper = (*plain_cases(), *growth_cases()) if of_the_wrapper else ()
    names = {case: name_of(case) for case in wrapper}
    for benchmark in benchmarks:
        if borrowed(benchmark.workload) is not None:
            names[benchmark.case(1, _USERS_LANES)] = f"counts {benchmark.name}"
        elif is_factory(benchmark.workload):
            lanes = len(benchmark.devices or _USERS_LANES)
            simulated = tuple(f"sim:{i}" for i in range(lanes))
            for kind, devices in (("simulated device", simulated), ("CPU lane", ("cpu",) * lanes)):
                case = benchmark.case(1, devices).model_copy(update={"devices": devices})
                names.setdefault(case, f"{benchmark.name}, on {lanes} {kind}{'' if lanes == 1 else 's'}")
    return {name: case for case, name in names.items()}


def gate_cases() -> tuple[Case, ...]:
    return (
        _case("mlp/tiny", SIMULATED, **_SMALL_BUCKETS),
        _case("transformer/tiny", SIMULATED, Mode.INFER, dispatch="auto"),
        _case("transformer/tiny", CPU, Mode.INFER),
        _case("mlp/tiny", SIMULATED, accumulate=2),
        _case("mlp/tiny", SIMULATED, batch=_LARGE_BATCH),
        _case("mlp/tiny", CPU, batch=_LARGE_BATCH),
        _case("mlp/tiny", SIMULATED, loss="replicas"),
        pieces_case(),
        star_case(),
        uses_case(),
        _case("mlp/tiny", CPU, dispatch="auto"),
        threads_case(),
        _case("mlp/tiny", CPU, dispatch="threads"),
    )


def stepping_cases() -> tuple[Case, ...]:
    """All are counted anyway."""
    return (_case("mlp/tiny", CPU), choice_case())


def choice_case() -> Case:
    return _case("transformer/tiny", CPU, Mode.INFER)


def pieces_case() -> Case:
    return _case("embedding/small", SIMULATED, route="chain")


def star_case() -> Case:
    return _case("embedding/small", SIMULATED, route="star")


def threads_case() -> Case:
    return _case("mlp/tiny", CPU, Mode.INFER, dispatch="auto")


def uses_case() -> Case:
    """More devices than one node's chain often has."""
    return _case("mlp/tiny", _MANY_SIMULATED)


def route_cases() -> tuple[Case, ...]:
    return (pieces_case(), star_case(), _case("mlp/tiny", SIMULATED, **_SMALL_BUCKETS))


def _case(
    workload: str, devices: tuple[str, ...], mode: Mode = Mode.TRAIN, batch: int = _BATCH, **parameters: Value
) -> Case:
    variant = VariantId(VariantName.TUNED).with_parameters(**parameters)
    return Case(variant=variant, workload=workload, batch=batch, devices=devices, mode=mode, threads=1)


def plain_cases() -> tuple[Case, ...]:
    """Their counters are compared one by one."""
    return (*(case for case in checked_cases() if case.variant.name is VariantName.TUNED), *gate_cases())


@dataclass(frozen=True)
class Doubling:
    """Two cases, the second with twice as much of what `name` says."""

    name: str
    small: Case
    large: Case


def doublings() -> tuple[Doubling, ...]:
    """On simulated devices the host's calls are counted, on CPU lanes the Python calls."""
    return (
        Doubling("parameters and modules sim", _case("many/tiny", SIMULATED[:2]), _case("many/small", SIMULATED[:2])),
        Doubling("parameters and modules cpu", _case("many/tiny", CPU[:2]), _case("many/small", CPU[:2])),
        Doubling("lanes sim", _case("mlp/tiny", SIMULATED[:2]), _case("mlp/tiny", SIMULATED)),
        Doubling("lanes cpu", _case("mlp/tiny", CPU[:2]), _case("mlp/tiny", CPU)),
    )


def growth_cases() -> tuple[Case, ...]:
    """Their counters are compared by their growth alone."""
    return tuple(dict.fromkeys(case for doubling in doublings() for case in (doubling.small, doubling.large)))


def job_of(case: Case) -> CountJob:
    """Large models on simulated devices are counted by shapes alone."""
    return CountJob(
        case=case,
        thorough=True,
        more_steps=MORE_STEPS if case in stepping_cases() else 0,
        uses=case in (choice_case(), uses_case()),
        routes=case in route_cases(),
        way="threads" if case == threads_case() else "sequence",
        numbers=case not in (pieces_case(), star_case()),
    )


def name_of(case: Case) -> str:
    """A name in the judgement, such as ``counts mlp/tiny cpu*4``, then what is not usual."""
    unusual = [str(case.mode)] if case.mode is not Mode.TRAIN else []
    unusual += [f"batch={case.batch}"] if case.batch != _BATCH else []
    parameters = str(case.variant).removeprefix(VariantName.TUNED)
    return " ".join(
        ["counts", case.workload, format_devices(case.devices), *unusual, *([parameters] if parameters else [])]
    )
