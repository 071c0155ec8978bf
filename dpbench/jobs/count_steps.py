"""Count steps on simulated devices at small batches, for any batch, and cache the counts.

$XDG_CACHE_HOME/dpbench/steps/<key>.json
"""

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory

from dpbench import __version__
from dpbench.cases.case import Case
from dpbench.cases.variants import VariantId, VariantName
from dpbench.engine.interpret import ChildError
from dpbench.engine.launch import Launcher, launch
from dpbench.engine.messages import CountJob
from dpbench.errors import WrongInputError
from dpbench.jobs.count import run_jobs
from dpbench.projection.step_counts import AffineCounts, StepCounts, count_step, merge
from dpbench.records.count_record import CountRecord
from dpbench.records.record import Outcome
from dpbench.records.recording import Recording
from dpbench.text.files import cache_folder, replace_text

ITEMS_PER_LANE = (2, 3)
CHECKED_ITEMS = (*ITEMS_PER_LANE, 4)
"""On one device a third count checks the line through the others."""
TIMEOUT_S = 600.0
_ROOT = Path(__file__).parents[1]
Step = tuple[VariantId, int]


def count_affine(
    workload: str, variant: str, lanes: int, *, folder: Path | None = None, launch: Launcher = launch
) -> AffineCounts:
    """Like `count_steps`, for one step."""
    step = VariantId(variant), lanes
    return count_steps(workload, [step], folder=folder, launch=launch)[step]


def count_steps(
    workload: str, steps: Sequence[Step], *, folder: Path | None = None, launch: Launcher = launch
) -> dict[Step, AffineCounts]:
    """The step of `ddp` is that of `single`, that of graphs the eager one in sequence, and that of route nccl has the
    star's copies. `folder` is the cache's, None for the user's. Raise WrongInputError, or ChildError.
    """
    counted = {step: _counted_as(*step) for step in steps}
    paths = {
        counted_step: (folder or cache_folder() / "steps") / f"{step_key(workload, *counted_step)}.json"
        for counted_step in dict.fromkeys(counted.values())
    }
    counts_of = dict[Step, AffineCounts]()
    for counted_step, path in paths.items():
        with suppress(OSError, ValueError):
            counts_of[counted_step] = AffineCounts.parse(path.read_text())
    missing = [step for step in paths if step not in counts_of]
    if missing:
        made = _count(workload, missing, launch)
        counts_of |= made
        for step, counts in made.items():
            with suppress(OSError):
                paths[step].parent.mkdir(parents=True, exist_ok=True)
                replace_text(paths[step], counts.text())
    return {step: counts_of[counted_step] for step, counted_step in counted.items()}


def step_key(workload: str, variant: str, lanes: int) -> str:
    python = ".".join(map(str, sys.version_info[:3]))
    parts = (workload, variant, lanes, CHECKED_ITEMS, __version__, _torch_version(), python, _sources())
    return sha256(json.dumps([*parts, _factory_file(workload)]).encode()).hexdigest()[:32]


def _counted_as(variant: VariantId, lanes: int) -> Step:
    if variant.name in (VariantName.DDP, VariantName.SINGLE):
        return VariantId(VariantName.SINGLE), 1
    if variant.values.get("graphs"):
        variant = variant.with_parameters(dispatch="sequence")
    if variant.takes_nccl_route:
        variant = variant.with_parameters(route="star")
    return variant, lanes


def _count(workload: str, steps: Sequence[Step], launch: Launcher) -> dict[Step, AffineCounts]:
    """Ways of dispatch differ in the host's calls alone, which no batch changes: further ways are counted at one."""
    first_of = dict[Step, Step]()
    for variant, lanes in steps:
        values = {name: value for name, value in variant.values.items() if name != "dispatch"}
        plain = VariantId(variant.name).with_parameters(**values)
        first_of[variant, lanes] = first_of.get((plain, lanes), (variant, lanes))
        first_of.setdefault((plain, lanes), (variant, lanes))
    sized_steps = [
        (step, items * step[1])
        for step in steps
        for items in (
            CHECKED_ITEMS if step[1] == 1 else ITEMS_PER_LANE if first_of[step] == step else ITEMS_PER_LANE[:1]
        )
    ]
    by_step = dict[Step, list[StepCounts]]()
    for (step, _), counts in zip(sized_steps, _counts(workload, sized_steps, launch), strict=True):
        by_step.setdefault(step, []).append(counts)
    merged = {step: merge(counts) for step, counts in by_step.items() if len(counts) > 1}
    for step, made in by_step.items():
        if step not in merged:
            merged[step] = _with_slope(made[0], merged[first_of[step]])
    return merged


def _with_slope(counts: StepCounts, other: AffineCounts) -> AffineCounts:
    """Change by the batch as another way of the same step does."""
    numbers = dict(counts.numbers)
    for name in other.first.numbers.keys() | other.last.numbers.keys():
        change = other.last.numbers.get(name, 0.0) - other.first.numbers.get(name, 0.0)
        if change:
            numbers[name] = numbers.get(name, 0.0) + change
    return AffineCounts(counts, replace(counts, batch=other.last.batch, numbers=numbers))


def _counts(workload: str, sized_steps: Sequence[tuple[Step, int]], launch: Launcher) -> list[StepCounts]:
    with TemporaryDirectory(prefix="dpbench-steps-") as name:
        files = [Path(name, f"{number}.jsonl") for number in range(len(sized_steps))]
        jobs = [
            CountJob(
                case=Case(
                    variant=variant,
                    workload=workload,
                    batch=batch,
                    devices=tuple(f"sim:{index}" for index in range(lanes)),
                    threads=1,
                ),
                events=str(path),
                numbers=False,
                gradients=variant.name is VariantName.SINGLE,
            )
            for ((variant, lanes), batch), path in zip(sized_steps, files, strict=True)
        ]
        records = run_jobs(jobs, launch=launch, timeout_s=TIMEOUT_S)
        for record in records:
            if record.outcome is Outcome.SKIPPED:
                raise WrongInputError(record.why)
            if record.outcome is not Outcome.OK:
                raise ChildError(f"counting {record.case.id} failed: {record.why}")
        return [
            count_step(Recording.read(path), record.case.batch, _peak_bytes(record))
            for record, path in zip(records, files, strict=True)
        ]


def _peak_bytes(record: CountRecord) -> dict[int, int]:
    peaks = dict[int, int]()
    for phase in record.counts.phases.values() if record.counts else ():
        for device, size in (phase.peak_bytes or {}).items():
            index = int(device.partition(":")[2])
            peaks[index] = max(size, peaks.get(index, 0))
    return peaks


def _torch_version() -> str:
    try:
        return version("torch")
    except PackageNotFoundError:
        return ""


@cache
def _sources() -> str:
    """A hash of all sources: a list of those that decide a recording would forget one."""
    digest = sha256()
    for path in sorted(_ROOT.rglob("*.py")):
        digest.update(str(path.relative_to(_ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _factory_file(workload: str) -> str:
    module, colon, _ = workload.partition(":")
    if not colon:
        return ""
    path = _file_of(module)
    return "" if path is None else sha256(path.read_bytes()).hexdigest()


def _file_of(module: str) -> Path | None:
    """As a child would find it; nothing is imported."""
    path = Path(*module.split("."))
    for root in ("", *sys.path):
        for candidate in (Path(root, path.with_suffix(".py")), Path(root, path, "__init__.py")):
            if candidate.is_file():
                return candidate
    return None
