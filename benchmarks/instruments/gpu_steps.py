"""The steps of `make gpu`: tests and measurements, each with its time limit. Pure.

The two calls are for a machine with one GPU that is lent for a quarter of an hour. In call 1 the refused captures come
last and alone, because they can break CUDA for their process.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from pathlib import Path

NOT_RUN = 77
"""The exit code of a script that cannot run here, as in automake's tests."""
CALLS_S = {1: 400.0, 2: 320.0}
"""The seconds of each call, from the start of the command to its end."""
PATIENCE = 4  # the factor of all limits without a call
MACHINE_FILE = "machine.toml"
GRAPHS = "tuned[graphs=true]"
_SCHEMES = ("single", "torch_dp", "naive", "floor", "tuned", "ddp")
_COMPARED, _AHEAD = ("single", "torch_dp", "floor", "tuned"), ("torch_dp", "tuned", GRAPHS)
_NVIDIA_SMI = f"command -v nvidia-smi || {{ echo there is no nvidia-smi; exit {NOT_RUN}; }}; nvidia-smi"
_PLUGINS = ("-p", "pytest_timeout", "-p", "no:cacheprovider")
_STREAM_TESTS, _GRAPH_TESTS = "tests/gpu/test_streams.py", "tests/gpu/test_graphs.py"
_FIRST_STREAMS, _REFUSALS = "lanes2 or missing or layer or policies", "refuses"

Lanes = tuple[str, ...]
Names = tuple[str, ...]
Key = tuple[str, Lanes]
"""A variant and its lanes."""


class Kind(Enum):
    """A step's success is judged accordingly."""

    TESTS = auto()
    COMPARISON = auto()
    SCRIPT = auto()


@dataclass(frozen=True)
class Step:
    """A command to run, and its limit. `wanted` are the variants that a comparison must have times of."""

    name: str
    command: tuple[str, ...]
    limit_s: float
    kind: Kind = Kind.SCRIPT
    environment: Mapping[str, str] = field(default_factory=dict)
    passing: tuple[int, ...] = (0,)
    wanted: frozenset[Key] = frozenset()


@dataclass(frozen=True)
class Plan:
    """On `count` GPUs, or on as many lanes of the CPU in their place.

    `on_workers` are pytest's options for tests that run side by side. `failed` are the tests that call 2 runs again.
    """

    kind: str
    count: int
    out: Path
    on_workers: Names = ()
    is_rehearsal: bool = False
    failed: Names = ()

    def lanes(self, *indices: int) -> Lanes:
        return tuple("cpu" if self.kind == "cpu" else f"{self.kind}:{index}" for index in indices)


def steps_of(plan: Plan, call: int | None = None) -> list[Step]:
    """Of a call, or all steps with longer limits. Several GPUs are compared without a call alone."""
    if call is not None:
        return list(_first_call(plan) if call == 1 else _second_call(plan))
    steps = [*_first_call(plan), *_second_call(plan), *_others(plan), *(_several(plan) if plan.count > 1 else ())]
    return [replace(step, limit_s=PATIENCE * step.limit_s) for step in steps]


def _first_call(plan: Plan) -> Iterator[Step]:
    yield Step("nvidia_smi", ("sh", "-c", _NVIDIA_SMI), 10)
    yield _tests("step", 45, plan, "tests/gpu/test_step.py", *plan.on_workers)
    yield _tests("graphs", 30, plan, _GRAPH_TESTS, "-k", f"not ({_REFUSALS})")
    yield _module("probe", 55, "benchmarks.instruments.gpu_probe", str(plan.out / "probe.json"))
    yield _tests("streams", 50, plan, _STREAM_TESTS, "-k", _FIRST_STREAMS)
    yield _compare("launch_bound", 120, plan, ("mlp", 64), [plan.lanes(0, 0)], (*_COMPARED, GRAPHS))
    rest = ("tests/gpu/test_steady_state.py", "tests/gpu/test_draws.py", "tests/gpu/test_traces.py")
    yield _tests("steady_state", 45, plan, *rest)
    yield _tests("refusals", 20, plan, _GRAPH_TESTS, "-k", _REFUSALS)


def _second_call(plan: Plan) -> Iterator[Step]:
    if plan.failed:
        yield _tests("failed", 25, plan, *plan.failed)
    chosen = ("-k", "pause and (lanes2 or policies or missing)", *plan.on_workers)
    # A torch without CUDA has no sanitizer. The other tests set more than the users' 8 connections.
    sanitizer = {} if plan.kind == "cpu" else {"TORCH_CUDA_SANITIZER": "1"}
    yield _tests("sanitizer", 45, plan, _STREAM_TESTS, *chosen, CUDA_DEVICE_MAX_CONNECTIONS="8", **sanitizer)
    # On an H200 a case took 7 s beside its steps, so a second round would not fit.
    yield _compare("compute_bound", 100, plan, ("transformer", 8), [plan.lanes(0, 0)], _COMPARED, "--rounds", "1")
    steps = ("--rounds", "1", "--steps-per-sample", "20")
    yield _compare("ahead", 60, plan, ("mlp", 64), [plan.lanes(0, 0)], _AHEAD, *steps)
    variants = "tuned" if plan.kind == "cpu" else f"tuned,{GRAPHS}"
    shown = ("--variants", variants, "--devices", "+".join(plan.lanes(0, 0)))
    yield _module("trace", 40, "dpbench", "trace", "mlp/small", *shown, "--output", str(plan.out / "trace"))
    yield _module("machine", 25, "benchmarks.machine_file", str(plan.out / MACHINE_FILE))


def _others(plan: Plan) -> Iterator[Step]:
    yield _tests("other_streams", 70, plan, _STREAM_TESTS, "-k", f"not ({_FIRST_STREAMS})")
    rest = ("tests/gpu/test_instruments.py", "tests/gpu/test_machine_file.py", "tests/gpu/test_several.py")
    yield _tests("other_tests", 70, plan, *rest)


def _several(plan: Plan) -> Iterator[Step]:
    """On 2, 4, 8 and so on and all GPUs, one for each lane; and their projection."""
    numbers = [*(2**power for power in range(1, plan.count) if 2**power < plan.count), plan.count]
    apart = [plan.lanes(*range(number)) for number in numbers]
    limit_s, small, large = 60 * (1 + len(apart)), ("mlp", max(64, plan.count)), ("transformer", max(8, 4 * plan.count))
    yield _compare("several_launch_bound", limit_s, plan, small, apart, (*_SCHEMES, GRAPHS))
    yield _compare("several_compute_bound", limit_s, plan, large, apart, _SCHEMES)
    yield _compare("several_ahead", 60, plan, small, apart[-1:], _AHEAD, "--steps-per-sample", "20")
    # A torch that is too old for the simulator runs no projection; it prints the commands to run elsewhere.
    yield _module(
        "projected", 10 * plan.count, "benchmarks.instruments.gpu_projection", str(plan.out), passing=(0, NOT_RUN)
    )


def _module(name: str, limit_s: float, module: str, *arguments: str, passing: tuple[int, ...] = (0,)) -> Step:
    return Step(name, (sys.executable, "-m", module, *arguments), limit_s, passing=passing)


def _tests(name: str, limit_s: float, plan: Plan, *arguments: str, **environment: str) -> Step:
    # A test that hangs shows where, before the step is cut. Other plugins on the machine may not fit this pytest.
    options = ("-m", "gpu", "-q", "-rfE", "--tb=short", "--maxfail=12", "-o", "faulthandler_timeout=15", *_PLUGINS)
    command = (sys.executable, "-m", "pytest", *options, *arguments)
    environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment}
    if plan.kind == "cpu":
        environment["DPBENCH_GPU_TESTS_ON"] = "cpu"
    return Step(name, command, limit_s, Kind.TESTS, environment)


def _compare(
    name: str, limit_s: float, plan: Plan, work: tuple[str, int], lists: list[Lanes], variants: Names, *more: str
) -> Step:
    size, budget_s = ("tiny", 1) if plan.is_rehearsal else ("small", round(limit_s * 2 / 3))
    rounds = () if "--rounds" in more else ("--rounds", "1" if plan.is_rehearsal else "2")
    asked = ("--workloads", f"{work[0]}/{size}", "--batch", str(work[1]), "--variants", ",".join(variants))
    where = ("--devices", ",".join("+".join(lanes) for lanes in lists), "--results", str(plan.out / name))
    command = ("compare", *asked, *where, *rounds, "--budget", f"{budget_s}s", *more)
    step = _module(name, limit_s, "dpbench", *command)
    wanted = frozenset(key for lanes in lists for key in _keys(lanes, variants))
    return replace(step, kind=Kind.COMPARISON, wanted=wanted)


def _keys(lanes: Lanes, variants: Names) -> list[Key]:
    """`single` on the first lane, and no graphs on the CPU."""
    missing = {"single", GRAPHS} if lanes[0] == "cpu" else {"single"}
    return [("single", lanes[:1]), *((variant, lanes) for variant in variants if variant not in missing)]
