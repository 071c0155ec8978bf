"""Which steps `make gpu` has, and that all tests for GPUs are among them. No process is started but one of pytest."""

import re
from pathlib import Path

import pytest

from benchmarks.instruments.gpu_summary import MACHINE_FILE, Kind
from benchmarks.instruments.on_gpu import CALLS_S, GRAPHS, PATIENCE, RESERVE_S, Plan, steps_of
from dpbench.cases.names import parse_devices
from dpbench.cases.spec import from_options

ROOT = Path(__file__).parents[2]
OUT = Path("out")
WORKERS = ("-p", "xdist", "--numprocesses", "6")
ONE = Plan(1, OUT, WORKERS, failed=("tests/gpu/test_step.py::test_autocast",))
START_UP_S = 12
ALL_SCHEMES = {"single", "torch_dp", "naive", "floor", "tuned", "ddp"}


def value_of(step, option):
    return step.command[step.command.index(option) + 1]


def by_name(plan, call=None):
    return {step.name: step for step in steps_of(plan, call)}


@pytest.mark.parametrize("call", CALLS_S)
def test_all_steps_of_a_call_fit_into_its_time(call):
    assert sum(step.limit_s for step in steps_of(ONE, call)) + START_UP_S <= CALLS_S[call] - RESERVE_S
    assert CALLS_S == {1: 400, 2: 320, 3: 480}


def test_the_first_call_asks_first_whether_steps_are_right_and_refuses_captures_last():
    first = by_name(ONE, 1)
    names = ["nvidia_smi", "step", "graphs", "questions", "streams", "launch_bound", "steady_state", "refusals"]
    assert list(first) == names
    assert first["step"].command[-5:] == ("tests/gpu/test_step.py", *WORKERS)
    assert value_of(first["graphs"], "-k") == "not (refuses)"
    assert value_of(first["refusals"], "-k") == "refuses"
    compared = first["launch_bound"]
    assert value_of(compared, "--variants").split(",") == ["single", "torch_dp", "floor", "tuned", GRAPHS]
    assert [value_of(compared, f"--{name}") for name in ("devices", "rounds", "budget")] == [
        "cuda:0+cuda:0",
        "2",
        "80s",
    ]


def test_the_second_call_begins_with_the_tests_that_failed():
    second = by_name(ONE, 2)
    assert list(second) == ["failed", "sanitizer", "compute_bound", "ahead", "trace", "machine"]
    assert second["failed"].command[-1:] == ONE.failed
    assert list(by_name(Plan(1, OUT), 2)) == list(second)[1:]
    assert (value_of(second["compute_bound"], "--workloads"), value_of(second["compute_bound"], "--batch")) == (
        "transformer/small",
        "8",
    )
    assert value_of(second["ahead"], "--steps-per-sample") == "20"
    assert all(second[name].command.count("--rounds") == 1 for name in ("compute_bound", "ahead"))
    assert {value_of(second[name], "--rounds") for name in ("compute_bound", "ahead")} == {"1"}
    assert second["machine"].command[-2:] == ("benchmarks.machine_file", "out/machine.toml")


def test_the_third_call_compares_like_with_like_under_autocast():
    third = by_name(ONE, 3)
    assert list(third) == ["compiled", "compiled_launch_bound", "compiled_compute_bound"]
    for name in list(third)[1:]:
        assert value_of(third[name], "--dtypes") == "autocast-bfloat16"
        assert ("single[compile=default]", ("cuda:0",)) in third[name].wanted
        assert ("tuned[compile=default,graphs=true]", ("cuda:0", "cuda:0")) in third[name].wanted


def test_without_a_call_the_steps_of_all_calls_run_with_more_patience():
    full, calls = by_name(ONE), {name: step for call in CALLS_S for name, step in by_name(ONE, call).items()}
    assert list(full) == [*calls, "other_streams", "other_tests"]
    assert all(full[name].limit_s == PATIENCE * step.limit_s for name, step in calls.items())


def test_every_file_of_gpu_tests_is_marked_and_run():
    """A step that takes a part of a file has another one for the rest."""
    parts = {path.relative_to(ROOT).as_posix(): set() for path in (ROOT / "tests/gpu").glob("test_*.py")}
    for step in steps_of(Plan(1, OUT)):
        if step.kind is Kind.TESTS and step.name != "sanitizer":
            assert value_of(step, "-m") == "pytest"
            assert step.command[step.command.index("-m", 3) + 1] == "gpu"
            for file in parts.keys() & {*step.command}:
                parts[file].add(value_of(step, "-k") if "-k" in step.command else "")
    for file, expressions in parts.items():
        assert re.search(r"^pytestmark = .*\bpytest\.mark\.gpu\b", (ROOT / file).read_text(), re.MULTILINE), file
        assert expressions == {""} or any(f"not ({expression})" in expressions for expression in expressions), file


@pytest.mark.parametrize(("count", "numbers"), [(2, [2]), (3, [2, 3]), (4, [2, 4]), (6, [2, 4, 6]), (8, [2, 4, 8])])
def test_several_gpus_are_compared_with_a_gpu_for_each_lane(count, numbers):
    steps, apart = by_name(Plan(count, OUT)), [parse_devices(f"cuda*{number}") for number in numbers]
    for name, schemes in (
        ("several_launch_bound", ALL_SCHEMES | {GRAPHS}),
        ("several_compute_bound", ALL_SCHEMES),
    ):
        assert [parse_devices(text) for text in value_of(steps[name], "--devices").split(",")] == apart
        assert {variant for variant, _ in steps[name].wanted} == schemes
        assert {where for variant, where in steps[name].wanted if variant == "ddp"} == set(apart)
        assert int(value_of(steps[name], "--batch")) >= count
    assert parse_devices(value_of(steps["several_ahead"], "--devices")) == apart[-1]
    assert list(steps)[-1] == "projected"


def test_races_run_under_torchs_sanitizer_with_the_users_connections():
    environment = by_name(Plan(2, OUT), 2)["sanitizer"].environment
    assert (environment["TORCH_CUDA_SANITIZER"], environment["CUDA_DEVICE_MAX_CONNECTIONS"]) == ("1", "8")


@pytest.mark.parametrize("plan", [ONE, Plan(8, OUT), Plan(2, OUT, is_rehearsal=True)])
def test_every_command_is_one_that_dpbench_and_pytest_take(plan):
    steps = steps_of(plan)
    for step in steps:
        assert all((ROOT / word.partition("::")[0]).exists() for word in step.command if word.startswith("tests/"))
        if step.kind is Kind.COMPARISON:
            words = step.command[4:]
            options = dict(zip(words[::2], words[1::2], strict=True))
            assert options.pop("--results") == f"out/{step.name}"
            from_options({name.removeprefix("--").replace("-", "_"): value for name, value in options.items()})
    assert len({step.name for step in steps}) == len(steps)


@pytest.mark.parametrize("call", CALLS_S)
def test_a_call_returns_at_most_eight_files(call):
    comparisons = [step.name for step in steps_of(ONE, call) if step.kind is Kind.COMPARISON]
    assert len(["output.txt", "summary.json", MACHINE_FILE, *comparisons]) <= 8
