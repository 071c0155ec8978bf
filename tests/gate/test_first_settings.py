"""What of a repository a gate could measure, and the settings that say so."""

from pathlib import Path

import pytest

from dpbench.gate.first_settings import FoundBenchmarks, find_benchmarks, settings_text
from dpbench.gate.settings import DEFAULT_BENCHMARKS, load_settings

IMPORT = "from dpbench.workloads.workload import Workload\n"


@pytest.mark.parametrize(
    ("name", "source", "factories", "tests"),
    [
        ("src/a/b.py", f"{IMPORT}def step() -> Workload: ...", ("a.b:step",), ()),
        ("a/__init__.py", f"{IMPORT}def step(size=2, *, wide=True):\n    return Workload(1)", ("a:step",), ()),
        ("a.py", "import dpbench.workloads.workload as w\ndef f() -> 'w.Workload': ...", ("a:f",), ()),
        ("a.py", f"{IMPORT}def f(size) -> Workload: ...\ndef g(*, size) -> Workload: ...", (), ()),
        ("a.py", f"{IMPORT}def _f() -> Workload: ...\n@cache\ndef g() -> Workload: ...", (), ()),
        ("a.py", f"{IMPORT}async def f() -> Workload: ...\nclass A:\n    def g() -> Workload: ...", (), ()),
        ("a.py", "from benchmark import Workload  # dpbench\ndef f() -> Workload: ...", (), ()),
        ("a.py", "def f():\n    import dpbench.workloads.workload as w\n    return w.Workload()", ("a:f",), ()),
        ("my-code/a.py", f"{IMPORT}def f() -> Workload: ...", (), ()),
        ("class/a.py", f"{IMPORT}def f() -> Workload: ...", (), ()),
        ("a.py", f"{IMPORT}def f() -> Workload: (", (), ()),
        ("a.py", f"{IMPORT}raise SystemExit\ndef f() -> Workload: ...", ("a:f",), ()),
        ("a.py", "(" * 5000 + "benchmark", (), ()),
        ("a.py", f"{IMPORT}def f() -> a{'.b' * 5000}: ...\ndef g() -> Workload: ...", (), ()),
        ("a.py", f"{IMPORT}def f() -> a{'.b' * 500}: ...\ndef g() -> Workload: ...", ("a:g",), ()),
        ("test_a.py", "def test_x(benchmark): ...", (), ("test_a.py",)),
        ("test_a.py", "class TestX:\n    def test_x(self, *, benchmark): ...", (), ("test_a.py",)),
        ("test_a.py", "class X:\n    def test_x(self, benchmark): ...", (), ()),
        ("test_a.py", "def run(benchmark): ...\ndef test_x(benchmarks): ...", (), ()),
        ("a.txt", "def test_x(benchmark): ...", (), ()),
    ],
)
def test_what_a_file_has(
    tmp_path: Path, name: str, source: str, factories: tuple[str, ...], tests: tuple[str, ...]
) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    benchmarks = find_benchmarks(tmp_path, [name, "gone.py", ""])
    assert (benchmarks.factories, benchmarks.tests, benchmarks.has_asv) == (factories, tests, False)


@pytest.mark.parametrize(
    ("names", "has_asv", "is_installable"),
    [
        (["asv.conf.json", "setup.py"], True, True),
        (["perf/asv.conf.jsonc"], True, False),
        (["a/b/asv.conf.json", "a/setup.py"], True, False),
        (["pyproject.toml"], False, True),
        (["tools/pyproject.toml"], False, False),
    ],
)
def test_asv_and_packages(tmp_path: Path, names: list[str], has_asv: bool, is_installable: bool) -> None:
    (tmp_path / "pyproject.toml").write_text("[build-system]\n")
    benchmarks = find_benchmarks(tmp_path, names)
    assert (benchmarks.has_asv, benchmarks.is_installable) == (has_asv, is_installable)


@pytest.mark.parametrize(
    ("benchmarks", "own", "borrowed", "build"),
    [
        (FoundBenchmarks(("a.b:step", "a_b:step")), ["a_b_step", "a_b_step_2"], [], True),
        (FoundBenchmarks(("a:Ü", "Ü:ö")), ["a", "step"], [], True),
        (FoundBenchmarks((), True, ('t "\\ö.py',), False), [], [("asv", "."), ("pytest", 't "\\ö.py')], False),
        (FoundBenchmarks(is_installable=False), [benchmark.name for benchmark in DEFAULT_BENCHMARKS], [], False),
    ],
)
def test_the_settings_are_valid(
    tmp_path: Path, benchmarks: FoundBenchmarks, own: list[str], borrowed: list[tuple[str, str]], build: bool
) -> None:
    path = tmp_path / "gate.toml"
    path.write_text(settings_text(benchmarks))
    settings = load_settings(path)
    assert [benchmark.name for benchmark in settings.benchmarks] == own
    assert [selection.wanted for selection in settings.borrowed] == borrowed
    assert {selection.pattern for selection in settings.borrowed} <= {True}
    assert bool(settings.build) is build
    assert all(factory in path.read_text() for factory in benchmarks.factories)


def test_the_commented_examples_are_valid_too(tmp_path: Path) -> None:
    lines = settings_text(FoundBenchmarks()).partition("git tracks.\n")[2].splitlines()
    path = tmp_path / "gate.toml"
    path.write_text("\n".join(line.removeprefix("#").strip() for line in lines))
    settings = load_settings(path)
    assert [benchmark.name for benchmark in settings.benchmarks] == ["my_step"]
    assert [selection.wanted[0] for selection in settings.borrowed] == ["pytest"]
