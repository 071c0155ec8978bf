"""`dp_benchmark` in a user's suite: saved, compared, refused. Times are scripted."""

import json
import subprocess
import sys

import pytest

from dpbench.judge.estimate import Estimate
from dpbench.records.baseline import BaselineError, Figures, from_json, to_json
from tests.pytest_plugin.suite import SUITE

pytest_plugins = ["pytester"]


def rewrite(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_figures_window_and_machine_are_saved(saved):
    content = json.loads(saved.read_text())
    (benchmark,) = content["benchmarks"]
    assert benchmark["stats"]["rounds"] == 20
    text = benchmark["extra_info"]["dpbench"]
    assert text["median_s"]["value"] == pytest.approx(0.00202)
    assert text["minimum_s"]["value"] == text["minimum_s"]["low"] == pytest.approx(0.002)
    assert text["minimum_s"]["high"] == pytest.approx(0.00202)
    assert text["devices"] == ["cpu", "cpu"]
    assert text["window"]["telemetry"] == {"cpu": "there is telemetry of NVIDIA's GPUs alone"}
    assert text["window"]["peak_rss_bytes"] > 0
    machine = content["machine_info"]["dpbench"]
    assert (machine["kind"], machine["environment"]["hostname"], machine["environment"]["commit"]) == (
        "baseline",
        "",
        None,
    )


def test_counters_are_those_of_one_step(pytester, run):
    suite = """
import torch
def test_count(dp_benchmark):
    a = torch.ones(4, 4)
    dp_benchmark(lambda: a @ a, rounds=20)
"""
    assert run("--benchmark-json=out.json", suite=suite).ret == 0
    (benchmark,) = json.loads((pytester.path / "out.json").read_text())["benchmarks"]
    counters = benchmark["extra_info"]["dpbench"]["counters"]
    assert (counters["operators"], counters["flops"]) == (1, 2 * 4 * 4 * 4)
    assert counters["python_calls"] == 1


def test_a_step_that_tries_things_out_is_not_timed_until_it_is_settled(pytester, run):
    suite = """
import time
def test_late(dp_benchmark):
    taken = []
    def step():
        time.sleep(0.02 if len(taken) < 30 else 0)
        taken.append(1)
    dp_benchmark(step, rounds=20, trials_left=lambda: max(0, 30 - len(taken)))
"""
    assert run("--benchmark-json=out.json", suite=suite).ret == 0
    (benchmark,) = json.loads((pytester.path / "out.json").read_text())["benchmarks"]
    assert benchmark["stats"]["max"] < 0.02


@pytest.mark.usefixtures("saved")
def test_the_same_again_passes_and_shows_the_ratio(run):
    result = run("--benchmark-compare", "-W", "error")
    assert result.ret == 0
    result.stdout.fnmatch_lines([" test *median, ms *", " test_suite.py::test_step * 1.000 *"])


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize("threshold", ['median="5%"', 'minimum="5%"', 'median="2.5%", minimum="900%"'])
def test_a_planted_slowdown_fails(run, threshold):
    result = run("--benchmark-compare", step_s=0.004, threshold=threshold)
    assert result.ret == 1
    result.stdout.re_match_lines([r".*(median|minimum) is 2 times the baseline's: .*; allowed: 1\.0\d+ times"])


@pytest.mark.usefixtures("saved")
def test_a_slowdown_below_the_threshold_passes(run):
    assert run("--benchmark-compare", step_s=0.004, threshold='median="150%"').ret == 0


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("gpus", ["NVIDIA H100", "NVIDIA H100"], "*differ in gpus (('NVIDIA H100', 'NVIDIA H100') / *"),
        ("driver", "550.54", "*differ in driver ('550.54' / *"),
        ("torch", "2.9.0", "*differ in torch ('2.9.0' / *"),
        ("cores", 3000, "*differ in cores (3000 / *"),
    ],
)
def test_a_foreign_baseline_is_refused_before_any_test(run, saved, field, value, text):
    rewrite(saved, lambda content: content["machine_info"]["dpbench"]["environment"].update({field: value}))
    result = run("--benchmark-compare")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([text])
    assert "passed" not in result.stdout.str()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda content: content.pop("machine_info"), "machine_info: missing"),
        (lambda content: content.update(machine_info=None), "machine_info: Input should be *"),
        (lambda content: content["machine_info"].update(dpbench=[]), "machine_info.dpbench: Input should be *"),
        (lambda content: content["benchmarks"][0].pop("fullname"), "benchmarks.0.fullname: missing"),
        (lambda content: content["benchmarks"][0].pop("extra_info"), "benchmarks.0.extra_info: missing"),
        (
            lambda content: content["benchmarks"][0]["extra_info"].update(dpbench="fast"),
            "benchmarks.0.extra_info.dpbench: Input should be *",
        ),
        (
            lambda content: content["benchmarks"][0]["extra_info"]["dpbench"].pop("median_s"),
            "test_suite.py::test_step: median_s: *",
        ),
    ],
)
def test_a_damaged_baseline_is_one_line(run, saved, change, text):
    rewrite(saved, change)
    result = run("--benchmark-compare")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --benchmark-compare: baseline: {text}"])


@pytest.mark.parametrize("figure", ["median_s", "minimum_s"])
@pytest.mark.parametrize("end", ["value", "low", "high"])
@pytest.mark.parametrize("number", [float("nan"), float("inf"), 0.0, -1.0])
def test_a_baseline_that_nothing_can_be_held_against_is_refused(figure, end, number):
    saved = to_json(Figures(Estimate(0.002, 0.001, 0.003), Estimate(0.001, 0.001, 0.002), 20))
    assert from_json(saved, "test_step").rounds == 20
    saved[figure][end] = number
    with pytest.raises(BaselineError, match=rf"test_step: {figure}: .*{end}={number}.*; allowed: .* above 0"):
        from_json(saved, "test_step")


NO_BASELINE = (["--benchmark-compare"], {}, "has no baseline; allowed:")
NO_THRESHOLDS = [
    ([], {"threshold": threshold}, "dp_threshold: .*; allowed: median and minimum, each such as")
    for threshold in ('mean="5%"', "median=5", '"5%"', "")
]
NO_ROUNDS = [
    ([], {"suite": SUITE.replace("rounds=20, warmup_rounds=3", given)}, line)
    for given, line in (
        ("rounds=19", "rounds: 19 are too few for an interval; allowed: 20 and above$"),
        ("rounds='50'", "ValueError: rounds: '50' is not allowed; allowed: whole numbers, 20 and above"),
        ("rounds=20.0", "ValueError: rounds: 20.0 is not allowed; allowed: whole numbers, 20 and above"),
        ("rounds=20, warmup_rounds=None", "ValueError: warmup_rounds: None is not allowed; allowed: whole numbers, 0 "),
        ("rounds=20, warmup_rounds=-1", "ValueError: warmup_rounds: -1 are too few; allowed: 0 and above"),
    )
]


@pytest.mark.parametrize(("words", "options", "line"), [NO_BASELINE, *NO_THRESHOLDS, *NO_ROUNDS])
def test_a_wrong_use_fails_its_test_and_says_what_is_allowed(run, words, options, line):
    result = run(*words, **options)
    assert result.ret == 1
    result.stdout.re_match_lines([f".*{line}"])


def test_disabled_it_steps_once_and_compares_nothing(run):
    suite = SUITE.replace("== 23", "== 4")
    assert run("--benchmark-disable", "--benchmark-compare", suite=suite).ret == 0


def test_without_pytest_benchmark_it_is_inert(pytester):
    pytester.makepyfile("def test_other(): pass")
    result = pytester.runpytest_inprocess("-p", "no:benchmark", "--strict-markers")
    result.assert_outcomes(passed=1)


def test_importing_it_is_cheap():
    code = "import sys, dpbench.pytest_plugin; assert not {'torch', 'numpy', 'pydantic', 'pynvml'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("devices", "text"),
    [('"cuda:0"', "'cuda:0'"), ("[]", "[[][]]"), ('["gpu"]', "[[]'gpu'[]]"), ("None", "None")],
)
def test_devices_that_are_none_are_refused(run, devices, text):
    """Without devices it would time how fast work is queued; a text would be a list of letters."""
    result = run(suite=SUITE.replace('["cpu", "cpu"]', devices))
    assert result.ret == 1
    result.stdout.fnmatch_lines([f"E *ValueError: devices: {text}; allowed: *"])


def test_a_step_that_raises_leaves_the_garbage_collector_as_it_was(run):
    suite = """
import gc
import pytest

def fail():
    raise RuntimeError("in the step")

def test_raises(dp_benchmark):
    with pytest.raises(RuntimeError, match="in the step"):
        dp_benchmark(fail, rounds=20, warmup_rounds=0)
    assert gc.get_freeze_count() == 0
"""
    assert run(suite=suite).ret == 0
