"""The steps of `make gpu`: tests and measurements, with the seconds that each needs. Pure.

A comparison starts a process that looks at the machine, and one for each round, which forks a child for each case::

    start-up │ start-up  case  case  case │ start-up  case  case  case │
                         └ set-up and check, warm-up, samples; the other ranks of ddp start too

The start-up is measured before the plan is made. The other seconds are estimates. If all steps need more than the time
that is left, cases and steps are left out in the order of `reductions`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from pathlib import Path

NOT_RUN = 77
"""The exit code of a script that cannot run here, as in automake's tests."""
MACHINE_FILE = "machine.toml"
"""What the step `machine` writes into the output folder."""
"""The exit code of dpbench on a machine that it cannot use."""
VARIANTS = ("single", "torch_dp", "naive", "floor", "tuned", "ddp")
STOCK_AND_TUNED = ("torch_dp", "tuned")
GRAPHS = "tuned[graphs=true]"
STEPS_AHEAD = 20

_SET_UP_S, _WARM_UP_S, _SAMPLE_S = 1.5, 0.5, 2.0  # of a case in a round; the samples are the least on accelerators
_LANE_S, _RANK_S = 0.2, 1.0  # for each lane, and for each rank of ddp

Lanes = tuple[str, ...]
Key = tuple[str, Lanes]
"""A variant and its lanes."""


class Kind(Enum):
    """What a step is. Its success is judged accordingly."""

    TESTS = auto()
    COMPARISON = auto()
    SCRIPT = auto()
    PROJECTION = auto()


@dataclass(frozen=True)
class Step:
    """A command to run. ``{budget}`` in `arguments` becomes the seconds that it may measure.

    `arguments` are those of Python. `needs_s` is an estimate of the step's seconds on a GPU. `passing` are the exit
    codes that pass, `skipping` those of a script that cannot run here. A skip of an optional step is no gap. `wanted`
    are the variants that a comparison must have times of, with their lanes.
    """

    name: str
    arguments: tuple[str, ...]
    needs_s: float
    kind: Kind = Kind.SCRIPT
    environment: Mapping[str, str] = field(default_factory=dict)
    passing: tuple[int, ...] = (0,)
    skipping: tuple[int, ...] = (NOT_RUN,)
    wanted: frozenset[Key] = frozenset()
    is_optional: bool = False


@dataclass(frozen=True)
class Place:
    """The devices that the steps use: the GPUs of this machine, or two lanes of the CPU in their place."""

    kind: str
    count: int

    def shared(self, lanes: int) -> Lanes:
        """Return lanes that share the first device."""
        return (self._device(0),) * lanes

    def apart(self, lanes: int) -> Lanes:
        """Return lanes with a device each."""
        return tuple(map(self._device, range(lanes)))

    def _device(self, index: int) -> str:
        return "cpu" if self.kind == "cpu" else f"{self.kind}:{index}"


@dataclass(frozen=True)
class Work:
    """What is run. `shared_lanes` are the numbers of lanes on one GPU.

    With `is_sparse`, comparisons over several GPUs use two and all of them, and no number between. `left_out` are names
    of steps. `start_s` are the seconds until a process has imported torch and opened CUDA.
    """

    launch_bound: str = "mlp/small"
    compute_bound: str = "transformer/small"
    shared_lanes: tuple[int, ...] = (1, 2, 4)
    variants: tuple[str, ...] = VARIANTS
    rounds: int = 2
    budget: str = "{budget}s"
    start_s: float = 8.0
    is_sparse: bool = False
    left_out: frozenset[str] = frozenset()


def rehearsed(work: Work) -> Work:
    """Return the same comparisons with the smallest workloads, one round and hardly any sampling."""
    return Work("mlp/tiny", "transformer/tiny", (1, 2), work.variants, 1, "1s")


def steps_of(place: Place, work: Work, out: Path) -> list[Step]:
    """Return all steps. With several devices there are also comparisons on a device for each lane."""
    steps = [*_checks(place), *_comparisons(place, work, out), *_projections(place, out)]
    return [step for step in steps if step.name not in work.left_out]


def reductions(place: Place, work: Work) -> Iterator[Work]:
    """Yield the work, then less and less of it. This is the order in which cases and steps are left out:

    1. with several GPUs, the comparisons of lanes that share one;
    2. with several GPUs, numbers of GPUs between two and all;
    3. telemetry's cost;
    4. with one GPU, the largest number of lanes on it;
    5. the variants floor and naive;
    6. the machine file and the projection from it;
    7. the compute-bound comparisons;
    8. steps in a row.
    """
    yield work
    if place.count > 1:
        yield (work := _without(work, "launch_bound", "compute_bound"))
        yield (work := replace(work, is_sparse=True))
    yield (work := _without(work, "telemetry"))
    if place.count == 1:
        yield (work := replace(work, shared_lanes=work.shared_lanes[:-1] or work.shared_lanes))
    fewer = tuple(variant for variant in work.variants if variant not in ("floor", "naive"))
    yield (work := replace(work, variants=fewer or work.variants))
    yield (work := _without(work, "machine", "projected"))
    yield (work := _without(work, "several_compute_bound", "compute_bound"))
    yield _without(work, "ahead")


def _without(work: Work, *names: str) -> Work:
    return replace(work, left_out=work.left_out | {*names})


def needed_s(steps: Sequence[Step]) -> float:
    return sum(step.needs_s for step in steps)


def fitted(place: Place, work: Work, out: Path, seconds: float) -> list[Step]:
    """Return the steps of the first of the `reductions` that fits into so many seconds, or of the last."""
    plans = [steps_of(place, each, out) for each in reductions(place, work)]
    return next((steps for steps in plans if needed_s(steps) <= seconds), plans[-1])


def lost(full: Sequence[Step], steps: Sequence[Step]) -> list[str]:
    """Return the names of the steps and the cases that the full plan has, and these steps have not."""
    kept = {step.name: step.wanted for step in steps}
    cases = [
        f"{step.name} {variant} on {len(lanes)}"
        for step in full
        if step.name in kept
        for variant, lanes in sorted(step.wanted - kept[step.name])
    ]
    return [*[step.name for step in full if step.name not in kept], *cases]


def _checks(place: Place) -> Iterator[Step]:
    races = ("-k", "pause and (lanes2 or policies or missing)", "tests/gpu/test_streams.py")
    several_s = 40.0 + 5 * place.count if place.count > 1 else 0.0
    yield _pytest("tests", 150 + several_s, place, "tests/gpu")
    # A torch without CUDA has no sanitizer. The other tests set more than the users' 8 connections.
    sanitizer = {} if place.kind == "cpu" else {"TORCH_CUDA_SANITIZER": "1"}
    yield _pytest("races", 50, place, *races, CUDA_DEVICE_MAX_CONNECTIONS="8", **sanitizer)
    # 1: a finding makes measurements unreliable
    yield Step("doctor", ("-m", "dpbench", "doctor", "--quick"), 15 + _pairs_s(place), passing=(0, 1))
    yield Step("telemetry", ("-m", "benchmarks.telemetry_cost", "--windows", "10", "--steps", "100"), 15)


def _comparisons(place: Place, work: Work, out: Path) -> Iterator[Step]:
    count, variants = place.count, work.variants
    launched = (*variants, GRAPHS)
    if count > 1:
        numbers = sorted({2, count}) if work.is_sparse else doubling(count)
        apart = [place.apart(lanes) for lanes in numbers]
        yield _compare("several_launch_bound", work, work.launch_bound, max(64, count), apart, launched, out)
        yield _compare("several_compute_bound", work, work.compute_bound, max(8, 4 * count), apart, variants, out)
    shared = [place.shared(lanes) for lanes in work.shared_lanes]
    yield _compare("launch_bound", work, work.launch_bound, 64, shared, launched, out)
    ahead = [place.apart(count) if count > 1 else place.shared(2)]
    more = ("--steps-per-sample", str(STEPS_AHEAD))
    yield _compare("ahead", work, work.launch_bound, max(64, count), ahead, STOCK_AND_TUNED, out, *more)
    yield _compare("compute_bound", work, work.compute_bound, 8, [place.shared(2)], variants, out)


def _projections(place: Place, out: Path) -> Iterator[Step]:
    """Yield the measurement of the machine's own numbers, and the projection of what the comparisons measured."""
    command = ("-m", "dpbench", "doctor", "--machine-file", str(out / MACHINE_FILE))
    yield Step("machine", command, 30, skipping=(NOT_RUN,))
    # Optional: a torch that is too old for the simulator skips it, and it runs elsewhere from the folder.
    projection = ("-m", "benchmarks.gpu_projection", str(out))
    yield Step("projected", projection, 10.0 * place.count, Kind.PROJECTION, is_optional=True)


def _pairs_s(place: Place) -> float:
    """Return the seconds to measure copies between all pairs of devices."""
    return 0.5 * (place.count**2 - 1)


def doubling(count: int) -> list[int]:
    """Return 2, 4, 8 and so on below `count`, and `count`, which is above 1."""
    return [*(2**power for power in range(1, count) if 2**power < count), count]


def _pytest(name: str, needs_s: float, place: Place, *arguments: str, **environment: str) -> Step:
    command = ("-m", "pytest", "-m", "gpu", "-raP", "-p", "pytest_timeout", "-p", "no:cacheprovider", *arguments)
    # Other plugins on the machine may not fit this version of pytest.
    environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment}
    if place.kind == "cpu":
        environment["DPBENCH_GPU_TESTS_ON"] = "cpu"
    return Step(name, command, needs_s, Kind.TESTS, environment)


def _compare(
    name: str,
    work: Work,
    workload: str,
    batch: int,
    lists: Sequence[Lanes],
    variants: Sequence[str],
    out: Path,
    *more: str,
) -> Step:
    wanted = frozenset(key for lanes in lists for key in _keys(lanes, variants))
    asked = ("--workloads", workload, "--batch", str(batch), "--variants", ",".join(variants))
    where = ("--devices", ",".join("+".join(lanes) for lanes in lists), "--rounds", str(work.rounds))
    command = ("-m", "dpbench", "compare", *asked, *where, "--budget", work.budget, "--results", str(out / name))
    needs_s = work.start_s + work.rounds * (work.start_s + sum(_case_s(work, *key) for key in wanted))
    return Step(name, (*command, *more), needs_s, Kind.COMPARISON, wanted=wanted)


def _case_s(work: Work, variant: str, lanes: Lanes) -> float:
    """Return the seconds of a case in a round. The first rank of ddp is the case's process, which has started."""
    own_s = _SET_UP_S + _WARM_UP_S + _SAMPLE_S + _LANE_S * len(lanes)
    return own_s + (work.start_s + _RANK_S * len(lanes) if variant == "ddp" and len(lanes) > 1 else 0.0)


def _keys(lanes: Lanes, variants: Sequence[str]) -> Iterator[Key]:
    """Yield what is measured on these lanes. NCCL has no ranks that share a GPU, and the CPU has no graphs."""
    yield "single", lanes[:1]
    is_on_cpu = lanes[0] == "cpu"
    missing = ["single"] if is_on_cpu or len(set(lanes)) == len(lanes) else ["single", "ddp"]
    for variant in variants:
        if variant not in missing and not (variant == GRAPHS and is_on_cpu):
            yield variant, lanes
