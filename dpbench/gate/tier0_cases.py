"""The steps and uses that tier 0 counts, and what is counted of each. Pure.

wrapper     those of `dpbench counts --check` that the wrapper does
user        the benchmarks whose workload is a factory, on simulated devices and on CPU lanes; borrowed benchmarks
settings    the tables [[counted]], also with twice the parameters or lanes: only what that adds is compared; [[uses]]
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dpbench.cases.case import Case
from dpbench.cases.counted_cases import checked_cases
from dpbench.cases.names import Mode, borrowed, format_devices, is_factory
from dpbench.cases.variants import VariantName
from dpbench.engine.messages import CountJob
from dpbench.gate.settings import USUAL_BATCH, Benchmark, CountedStep, Settings

_USERS_LANES = ("cpu", "cpu")
"""For a benchmark that leaves its devices to the machine: its counts then do not depend on the machine."""

Jobs = dict[str, CountJob]
"""By the name of the case in the judgement."""


@dataclass(frozen=True)
class Doubling:
    """Names of two jobs, the second with twice as much of something."""

    small: str
    large: str

    @property
    def name(self) -> str:
        return f"growth from {self.small}"


@dataclass(frozen=True)
class Tier0:
    """Of `grown` jobs only the growth is compared."""

    jobs: Mapping[str, CountJob] = field(default_factory=dict)
    doublings: tuple[Doubling, ...] = ()
    grown: frozenset[str] = frozenset()

    def jobs_by_benchmark(self) -> Jobs:
        """A growth has the job of its larger case."""
        return {**self.jobs, **{doubling.name: self.jobs[doubling.large] for doubling in self.doublings}}


def tier0_of(settings: Settings, *jobs: Jobs, has_wrapper: bool = True) -> Tier0:
    """Those of the settings, of which steps need the wrapper, beside `jobs`."""
    tables = settings.counted if has_wrapper else ()
    pairs = [(table, large) for table in tables for large in [table.doubled()] if large is not None]
    plain = {name: job for named in jobs for name, job in named.items()}
    plain |= {name_of(table.case()): _step(table) for table in tables if table.doubled() is None}
    plain |= {uses.name: CountJob(case=uses.case(settings.top)) for uses in settings.uses}
    growing = {name_of(step.case()): _step(step) for pair in pairs for step in pair}
    doublings = tuple(Doubling(*(name_of(step.case()) for step in pair)) for pair in pairs)
    return Tier0({**growing, **plain}, doublings, frozenset(growing.keys() - plain.keys()))


def wrapper_jobs() -> Jobs:
    return {name_of(case): _job(case) for case in checked_cases() if case.variant.name is VariantName.TUNED}


def own_jobs(benchmarks: Sequence[Benchmark]) -> Jobs:
    """The user's steps; a call of a borrowed benchmark is counted by itself."""
    jobs: Jobs = {}
    for benchmark in benchmarks:
        if borrowed(benchmark.workload) is not None:
            jobs[f"counts {benchmark.name}"] = _job(benchmark.case(1, _USERS_LANES))
        elif is_factory(benchmark.workload):
            lanes = len(benchmark.devices or _USERS_LANES)
            simulated = tuple(f"sim:{i}" for i in range(lanes))
            for kind, devices in (("simulated device", simulated), ("CPU lane", ("cpu",) * lanes)):
                case = benchmark.case(1, devices).model_copy(update={"devices": devices})
                if case not in [job.case for job in jobs.values()]:
                    jobs[f"{benchmark.name}, on {lanes} {kind}{'' if lanes == 1 else 's'}"] = _job(case)
    return jobs


def _job(case: Case) -> CountJob:
    return CountJob(case=case, thorough=True, way="sequence")


def _step(table: CountedStep) -> CountJob:
    chosen = {"more_steps": table.more_steps, "routes": table.routes, "way": table.auto, "numbers": table.numbers}
    return _job(table.case()).model_copy(update=chosen)


def name_of(case: Case) -> str:
    """A name in the judgement, such as ``counts mlp/tiny cpu*4``, then what is not usual."""
    unusual = [str(case.mode)] if case.mode is not Mode.TRAIN else []
    unusual += [f"batch={case.batch}"] if case.batch != USUAL_BATCH else []
    parameters = str(case.variant).removeprefix(VariantName.TUNED)
    return " ".join(
        ["counts", case.workload, format_devices(case.devices), *unusual, *([parameters] if parameters else [])]
    )
