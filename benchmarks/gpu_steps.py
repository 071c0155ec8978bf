"""The steps of `make gpu`: tests and measurements, with the seconds that each needs. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path

NOT_RUN = 77
"""The exit code of a script that cannot run here, as in automake's tests."""
MACHINE_FILE = "machine.toml"
"""What the step `machine` writes into the output folder."""
NO_ACCELERATOR = 3
"""The exit code of dpbench on a machine that it cannot use."""
VARIANTS = ("single", "torch_dp", "naive", "floor", "tuned", "ddp")
STOCK_AND_TUNED = ("torch_dp", "tuned")
STEPS_AHEAD = 20

_CHILD_S = 6.0  # one case in one round: its process imports torch and opens CUDA

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
    codes that pass, `skipping` those of a script that cannot run here. `wanted` are the variants that a comparison must
    have times of, with their lanes.
    """

    name: str
    arguments: tuple[str, ...]
    needs_s: float
    kind: Kind = Kind.SCRIPT
    environment: Mapping[str, str] = field(default_factory=dict)
    passing: tuple[int, ...] = (0,)
    skipping: tuple[int, ...] = (NOT_RUN,)
    wanted: frozenset[Key] = frozenset()


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
    """What the comparisons measure. `shared_lanes` are the numbers of lanes on one GPU."""

    launch_bound: str = "mlp/small"
    compute_bound: str = "transformer/small"
    shared_lanes: tuple[int, ...] = (1, 2, 4)
    variants: tuple[str, ...] = VARIANTS
    rounds: int = 2
    budget: str = "{budget}s"


def rehearsed(work: Work) -> Work:
    """Return the same comparisons with the smallest workloads, one round and hardly any sampling."""
    return Work("mlp/tiny", "transformer/tiny", (1, 2), work.variants, 1, "1s")


def steps_of(place: Place, work: Work, out: Path) -> list[Step]:
    """Return all steps. With several devices there are also comparisons on a device for each lane."""
    return [*_checks(place), *_comparisons(place, work, out), *_projections(place, out)]


def _checks(place: Place) -> Iterator[Step]:
    races = ("-k", "pause and (lanes2 or policies or missing)", "tests/gpu/test_streams.py")
    yield _pytest("tests", 150, place, "tests/gpu")
    # A torch without CUDA has no sanitizer.
    sanitizer = {} if place.kind == "cpu" else {"TORCH_CUDA_SANITIZER": "1"}
    yield _pytest("races", 50, place, *races, **sanitizer)
    # 1: a finding makes measurements unreliable
    yield Step("doctor", ("-m", "dpbench", "doctor", "--quick"), 15, passing=(0, 1))
    yield Step("telemetry", ("-m", "benchmarks.telemetry_cost", "--windows", "10", "--steps", "100"), 20)


def _comparisons(place: Place, work: Work, out: Path) -> Iterator[Step]:
    count, variants = place.count, work.variants
    if count > 1:
        apart = [place.apart(lanes) for lanes in doubling(count)]
        yield _compare("several_launch_bound", work, work.launch_bound, max(64, count), apart, variants, out)
        yield _compare("several_compute_bound", work, work.compute_bound, max(8, 4 * count), apart, variants, out)
    shared = [place.shared(lanes) for lanes in work.shared_lanes]
    yield _compare("launch_bound", work, work.launch_bound, 64, shared, variants, out)
    ahead = [place.apart(count) if count > 1 else place.shared(2)]
    more = ("--steps-per-sample", str(STEPS_AHEAD))
    yield _compare("ahead", work, work.launch_bound, max(64, count), ahead, STOCK_AND_TUNED, out, *more)
    yield _compare("compute_bound", work, work.compute_bound, 8, [place.shared(2)], variants, out)


def _projections(place: Place, out: Path) -> Iterator[Step]:
    """Yield the measurement of the machine's own numbers, and the projection of what the comparisons measured."""
    command = ("-m", "dpbench", "doctor", "--machine-file", str(out / MACHINE_FILE))
    # On lanes of the CPU the doctor says that there is nothing to describe.
    skipping = (NOT_RUN, NO_ACCELERATOR) if place.kind == "cpu" else (NOT_RUN,)
    yield Step("machine", command, 30.0 + 0.5 * (place.count**2 - 1), skipping=skipping)
    yield Step("projected", ("-m", "benchmarks.gpu_projection", str(out)), 10.0 * place.count, Kind.PROJECTION)


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
    needs_s = _CHILD_S * work.rounds * len(wanted)
    return Step(name, (*command, *more), needs_s, Kind.COMPARISON, wanted=wanted)


def _keys(lanes: Lanes, variants: Sequence[str]) -> Iterator[Key]:
    """Yield what is measured on these lanes. NCCL has no ranks that share a GPU."""
    yield "single", lanes[:1]
    is_shared = len(set(lanes)) < len(lanes) and lanes[0] != "cpu"
    for variant in variants:
        if variant != "single" and not (variant == "ddp" and is_shared):
            yield variant, lanes
