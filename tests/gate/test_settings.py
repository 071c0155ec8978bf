"""Settings files: what they may say, and the error for each mistake."""

from datetime import date
from pathlib import Path

import pytest

from dpbench.cases.case import Case
from dpbench.cases.names import Dtype, Mode
from dpbench.cases.variants import VariantName
from dpbench.engine.messages import Timed
from dpbench.gate.judgement import Accepted
from dpbench.gate.settings import (
    DEFAULT_BENCHMARKS,
    SETTINGS,
    Benchmark,
    Cores,
    Settings,
    SettingsError,
    default_benchmarks,
    load_settings,
    parse_share,
    read_settings,
    settings_file,
)
from dpbench.gate.tier0_cases import tier0_of
from tests.cli.repositories import git

FULL = """
alarm_rate = "1%"

[thresholds]
wide = 0.05

[[benchmark]]
name = "wide"
workload = "mlp/large"
batch = 256
devices = "cpu*4"
mode = "infer"
dtype = "float64"
variant = "naive"
cores = "all"
threshold = "3%"

[[benchmark]]
name = "own_1"
workload = "my.pkg:factory"
batch = 8
threshold = 0.12

[[accepted]]
benchmark = "wide"
revision = "1f2e3d4"
reason = "the checks of inputs are worth it"
expires = 2027-01-31

[[accepted]]
benchmark = "counts *"
revision = "1f2e3d4c5b"
reason = "one more copy"
expires = "2027-02-28"
"""
BENCHMARK = '[[benchmark]]\nname = "one"\nworkload = "mlp/tiny"\nbatch = 8\nthreshold = "3%"\n'
TABLE = "[[benchmark]]\n"
SCRIPT = TABLE + 'script = "train.py"\n'
COUNTED = '[[counted]]\nworkload = "mlp/tiny"\n'
USES = '[[uses]]\nfile = "a.py"\n'
ACCEPTED = '[[accepted]]\nbenchmark = "one"\nrevision = "1f2e3d4"\nreason = "so"\nexpires = 2027-01-31\n'


def loaded(folder: Path, text: str) -> Settings:
    path = folder / "gate.toml"
    path.write_text(text)
    return load_settings(path)


def error_of(folder: Path, text: str) -> str:
    with pytest.raises(SettingsError) as caught:
        loaded(folder, text)
    path, text = folder / "gate.toml", str(caught.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    return text.removeprefix(f"{path}: ")


def test_everything_in_a_file_is_read(tmp_path: Path) -> None:
    settings = loaded(tmp_path, FULL)
    wide, own = settings.benchmarks
    assert wide.case(8, ("cuda:0",)) == Case(
        variant=VariantName.NAIVE,
        workload="mlp/large",
        batch=256,
        devices=("cpu",) * 4,
        mode=Mode.INFER,
        dtype=Dtype.FLOAT64,
        threads=8,
    )
    assert own.case(8, ("cpu", "cpu")) == Case(
        variant=VariantName.TUNED, workload="my.pkg:factory", batch=8, devices=("cpu", "cpu"), threads=1
    )
    assert (wide.name, wide.threshold, own.name, own.threshold) == ("wide", 0.05, "own_1", 0.12)
    assert settings.alarm_rate == 0.01
    assert settings.accepted == (
        Accepted(
            benchmark="wide",
            revision="1f2e3d4",
            reason="the checks of inputs are worth it",
            expires=date(2027, 1, 31),
        ),
        Accepted(benchmark="counts *", revision="1f2e3d4c5b", reason="one more copy", expires=date(2027, 2, 28)),
    )


def test_an_empty_file_has_the_defaults(tmp_path: Path) -> None:
    assert loaded(tmp_path, "") == Settings() == Settings(benchmarks=DEFAULT_BENCHMARKS, alarm_rate=0.005)
    assert [benchmark.threshold for benchmark in DEFAULT_BENCHMARKS] == [0.015] * 3 + [0.03, 0.05, 0.1, 0.15, 0.3, 0.15]
    assert [benchmark.cores for benchmark in DEFAULT_BENCHMARKS] == [Cores.ONE] * 5 + [Cores.ALL] + [Cores.ONE] * 3


def test_a_threshold_changes_one_default_and_no_default_of_the_next_file(tmp_path: Path) -> None:
    inference = loaded(tmp_path, '[thresholds]\ninference = "7.5 %"').benchmarks[2]
    assert (inference.name, inference.threshold) == ("inference", 0.075)
    assert loaded(tmp_path, "") == Settings()


def test_defaults_run_on_the_lanes_of_an_accelerator_else_on_their_own(tmp_path: Path) -> None:
    lanes = ("cuda:0", "cuda:1")
    assert default_benchmarks(("cpu", "cpu")) == DEFAULT_BENCHMARKS
    there = default_benchmarks(lanes)
    assert {benchmark.devices for benchmark in there if benchmark.timed is Timed.STEP} == {lanes}
    assert there[-3:] == DEFAULT_BENCHMARKS[-3:]  # the start-ups are the host's
    assert [benchmark.name for benchmark in there] == [benchmark.name for benchmark in DEFAULT_BENCHMARKS]
    (tmp_path / "gate.toml").write_text("[thresholds]\ninference = 0.5")
    loaded_there = load_settings(tmp_path / "gate.toml", there).benchmarks
    assert [(benchmark.devices, benchmark.threshold) for benchmark in loaded_there] == [
        *((lanes, threshold) for threshold in (0.015, 0.015, 0.5, 0.03, 0.05, 0.1)),
        *((benchmark.devices, benchmark.threshold) for benchmark in DEFAULT_BENCHMARKS[-3:]),
    ]


@pytest.mark.parametrize(
    ("value", "share"),
    [("3%", 0.03), (" 3 % ", 0.03), ("0.5%", 0.005), (0.03, 0.03), (1, 1.0), (10, 10.0), ("1000%", 10.0)],
)
def test_a_share_is_a_number_or_percents(value: object, share: float) -> None:
    assert parse_share(value) == pytest.approx(share, rel=1e-12)


@pytest.mark.parametrize(
    "value",
    [
        *("3", "0.03", "", "%", "-3%", "0%", "1001%", "nan%", "٣%", "3%\n%"),
        *(0, -0.1, 10.01, 10**400, float("nan"), float("inf"), True, None, [0.03]),
    ],
)
def test_other_values_are_no_share(value: object) -> None:
    with pytest.raises(ValueError, match="is no share"):
        parse_share(value)


@pytest.mark.parametrize("value", ['"5"', "nan", "inf", "true", "0", "11", '"fast"', "-0.1", "1" + "0" * 400])
def test_a_threshold_that_is_no_share_raises_with_benchmark_value_and_what_is_allowed(
    tmp_path: Path, value: str
) -> None:
    shown = {"true": "True"}.get(value, value.replace('"', "'"))
    allowed = 'allowed: a share such as 0.03, or text such as "3%"; above 0, at most 10 (1000 %)'
    error = error_of(tmp_path, BENCHMARK.replace('"3%"', value))
    assert error == f"benchmark 'one': threshold: {shown} is no share; {allowed}"
    error = error_of(tmp_path, f"{BENCHMARK}\n[thresholds]\none = {value}")
    assert error == f"thresholds: one: {shown} is no share; {allowed}"


def test_a_threshold_of_an_unknown_benchmark_names_the_near_ones(tmp_path: Path) -> None:
    assert error_of(tmp_path, '[thresholds]\ninferense = "3%"') == (
        "thresholds: 'inferense' is no benchmark, did you mean 'inference'?; "
        "allowed: launch_bound, many_parameters, inference, default_dispatch, threads, all_cores, "
        "import, construction, first_forward"
    )
    assert error_of(tmp_path, f'{BENCHMARK}[thresholds]\ninference = "3%"') == (
        "thresholds: 'inference' is no benchmark; allowed: one"
    )


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[", "is not TOML: "),
        ("alarm_rates = 1", "alarm_rates: unknown key, did you mean 'alarm_rate'?; allowed: benchmark, thresholds, "),
        ("alarm_rate = 0.21", "alarm_rate: 0.21 is not allowed; allowed: a share such as 0.005"),
        ("alarm_rate = 0", "alarm_rate: 0 is no share; allowed: a share such as 0.005"),
        ('[benchmark]\nname = "x"', "benchmark: {'name': 'x'} is not allowed; allowed: tables that begin with [[bench"),
        ("thresholds = 3", "thresholds: 3 is not allowed; allowed: a table"),
        (BENCHMARK + BENCHMARK, "benchmark: name: 'one' is there twice; allowed: each name once"),
        (BENCHMARK + "speed = 1", "benchmark 'one': speed: unknown key; allowed: name, workload"),
        (BENCHMARK + 'cores = "two"', "benchmark 'one': cores: 'two' is not allowed; allowed: one of one, all"),
        (BENCHMARK + 'timed = "imports"', "benchmark 'one': timed: 'imports' is not allowed, did you mean 'import'?; "),
        (BENCHMARK + 'mode = "trian"', "benchmark 'one': mode: 'trian' is not allowed, did you mean 'train'?; allowed"),
        (BENCHMARK + 'devices = "gpu 1"', "benchmark 'one': devices: 'gpu 1' is not a device list; "),
        (BENCHMARK.replace("one", "one two"), "benchmark 'one two': name: 'one two' is not allowed; allowed: text of"),
        (BENCHMARK.replace("one", "one\\n"), "benchmark 'one\\n': name: 'one\\n' is not allowed; allowed: text of"),
        (BENCHMARK.replace("mlp/tiny", "mpl/tiny"), "benchmark 'one': workload: 'mpl/tiny' is no workload, did you"),
        (BENCHMARK.replace("8", "0"), "benchmark 'one': batch: 0 is not allowed; allowed: a whole number from 1"),
        (BENCHMARK.replace("8", "true"), "benchmark 'one': batch: True is not allowed"),
        (BENCHMARK.replace('name = "one"', ""), "benchmark 1: name: is missing; allowed: text of a to z"),
        (BENCHMARK.replace('threshold = "3%"', ""), "benchmark 'one': threshold: is missing; allowed: a share such"),
        (ACCEPTED.replace('reason = "so"', ""), "accepted 1: reason: is missing; allowed: text that is not empty"),
        (ACCEPTED.replace('"so"', '" "'), "accepted 1: reason: ' ' is not allowed; allowed: text that is not empty"),
        (ACCEPTED.replace("1f2e3d4", "1f2e3d"), "accepted 1: revision: '1f2e3d' is not allowed; allowed: text: a com"),
        (ACCEPTED.replace("1f2e3d4", "mainline"), "accepted 1: revision: 'mainline' is not allowed"),
        (ACCEPTED.replace("2027-01-31", '"2027-02-30"'), "accepted 1: expires: '2027-02-30' is no date; allowed: a d"),
        (ACCEPTED.replace("2027-01-31", "20270131"), "accepted 1: expires: 20270131 is no date; allowed: a date"),
        (ACCEPTED.replace("2027-01-31", "2027-01-31T00:00:00Z"), "accepted 1: expires: datetime.datetime(2027, "),
        (ACCEPTED + ACCEPTED.replace("expires", "until"), "accepted 2: expires: is missing; allowed: a date such as "),
        (ACCEPTED + 'by = "me"', "accepted 1: by: unknown key; allowed: benchmark, revision, reason, expires"),
        (
            TABLE + 'asv = "a"\npytest = "b"',
            "benchmark 1: asv: 'a' is beside pytest; allowed: one of asv, pytest, workload",
        ),
        (
            TABLE + 'pytest = "a"\nworkload = "mlp/tiny"',
            "benchmark 1: pytest: 'a' is beside workload; allowed: one of asv",
        ),
        (TABLE + 'asv = ""', "benchmark 1: asv: '' is not allowed; allowed: text: a name as asv writes it"),
        (TABLE + 'asv = "a"\nbatch = 3', "benchmark 1: batch: unknown key; allowed: asv, pytest, "),
        (TABLE + 'asv = "a"\nthreshold = -1', "benchmark 1: threshold: -1 is no share; allowed: a share such as 0.03"),
        (
            TABLE + 'script = "a.txt"',
            "benchmark 1: script: 'a.txt' is no script of the repository; allowed: text: the path of",
        ),
        (TABLE + 'script = "../a.py"', "benchmark 1: script: '../a.py' is no script of the repository"),
        (TABLE + 'script = "/a.py"', "benchmark 1: script: '/a.py' is no script of the repository"),
        (SCRIPT + "ranks = 1", "benchmark 1: ranks: 1 is not allowed; allowed: a whole number from 2 to 8"),
        (SCRIPT + "steps = 2", "benchmark 1: steps: 2 is not allowed; allowed: a whole number from 3 to 1000"),
        (SCRIPT + 'args = "--tiny"', "benchmark 1: args: '--tiny' is not allowed; allowed: a list of texts"),
        (SCRIPT + 'workload = "mlp/tiny"', "benchmark 1: workload: 'mlp/tiny' is beside script"),
        (SCRIPT + "batch = 8", "benchmark 1: batch: unknown key"),
        (
            COUNTED + 'devices = "cuda*2"',
            "counted 1: devices: 'cuda:0+cuda:1' cannot be counted; allowed: text such as cpu",
        ),
        (COUNTED, "counted 1: devices: is missing; allowed: text such as cpu*4 or sim*4"),
        (
            COUNTED + 'devices = "cpu*2"\nauto = "fast"',
            "counted 1: auto: 'fast' is not allowed; allowed: sequence or threads",
        ),
        (COUNTED + 'devices = "cpu*2"\ndoubled = 3', "counted 1: doubled: unknown key, did you mean 'doubled_devices'"),
        (COUNTED + 'devices = "cpu*2"\nmore_steps = -1', "counted 1: more_steps: -1 is not allowed; allowed: a whole"),
        ("[[uses]]", "uses 1: file: is missing; allowed: text: the path of a file in the repository that ends with"),
        ('[[uses]]\nfile = "a.txt"', "uses 1: file: 'a.txt' is no script of the repository; allowed: text: the path"),
        (
            USES + 'devices = "cuda*2"',
            "uses 1: devices: 'cuda:0+cuda:1' cannot be counted; allowed: text such as cpu*4",
        ),
        (USES + "batch = 8", "uses 1: batch: unknown key; allowed: file, devices"),
        ('uses = "a.py"', "uses: 'a.py' is not allowed; allowed: tables that begin with [[uses]]"),
    ],
)
def test_bad_input_names_key_value_and_what_is_allowed(tmp_path: Path, text: str, error: str) -> None:
    assert error_of(tmp_path, text).startswith(error)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=f"^{tmp_path}/no.toml: cannot be read: No such file or directory; allowed"):
        load_settings(tmp_path / "no.toml")
    (tmp_path / "latin.toml").write_bytes(b'x = "\xe9"')
    with pytest.raises(SettingsError, match=f"^{tmp_path}/latin.toml: is not TOML: "):
        load_settings(tmp_path / "latin.toml")


def test_a_file_of_uses_is_of_the_checkout_that_has_the_settings(tmp_path: Path) -> None:
    """In CI the working tree is head's, and the settings are of a trusted branch."""
    for name in ("trusted", "head"):
        git(tmp_path, "init", "--quiet", name)
        (tmp_path / name / "a.py").touch()
    (tmp_path / "trusted" / "gate.toml").write_text(USES)
    settings = read_settings(tmp_path / "head", tmp_path / "trusted" / "gate.toml", ("cpu",))
    (job,) = tier0_of(settings).jobs.values()
    assert job.case.workload == f"uses {tmp_path}/trusted/a.py"


def test_a_file_of_uses_that_is_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "gate.toml").write_text(USES)
    with pytest.raises(SettingsError, match=r"^uses: file: 'a.py': '.*' has no such file; allowed: one"):
        read_settings(tmp_path, tmp_path / "gate.toml", ("cpu",))
    (tmp_path / "a.py").touch()
    assert [uses.name for uses in read_settings(tmp_path, tmp_path / "gate.toml", ("cpu",)).uses] == ["a.py cpu*2"]


def test_a_benchmark_made_in_python_is_checked_like_one_of_a_file() -> None:
    with pytest.raises(ValueError, match="is no share"):
        Benchmark(name="x", workload="mlp/tiny", batch=1, threshold=float("nan"))


def test_without_gate_toml_the_settings_are_those_of_pyproject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(tmp_path, "init", "--quiet")
    monkeypatch.chdir(tmp_path)
    project = tmp_path / "pyproject.toml"
    assert settings_file(tmp_path) is None
    project.write_text("[tool.dpbench]\n")
    assert settings_file(tmp_path) is None
    project.write_text("[tool.dpbench.gate]\n")
    assert settings_file(tmp_path) == Path("pyproject.toml")
    (tmp_path / SETTINGS.parent).mkdir()
    (tmp_path / SETTINGS).touch()
    assert settings_file(tmp_path) == tmp_path / SETTINGS


def test_the_budget_may_be_the_settings_own(tmp_path):
    (tmp_path / "gate.toml").write_text('budget = "12m"\n')
    assert load_settings(tmp_path / "gate.toml").budget_s == 720
    (tmp_path / "gate.toml").write_text("budget = 0\n")
    with pytest.raises(SettingsError, match=r"budget: 0 is no duration above 0 .*allowed: text such as"):
        load_settings(tmp_path / "gate.toml")
