"""Benchmarks that a project has already: which are compared, and the whole command line over real suites."""

import json
import subprocess
from types import SimpleNamespace

import pytest

from dpbench.engine.fence import landlock_version
from dpbench.engine.messages import Listed, Listing
from dpbench.errors import GateError
from dpbench.gate import benchmarks
from dpbench.gate.benchmarks import Benchmarks, choose, choose_benchmarks
from dpbench.gate.count_sides import settled
from dpbench.gate.judgement import CounterChange
from dpbench.gate.settings import BorrowedBenchmark, Cores, Selection, Settings, load_settings
from dpbench.gate.sides import Sides
from tests.cli.repositories import command, commit, edited, environment, git
from tests.gate.borrowed_suites import make_project


def listing(*listed, problems=()):
    return Listing(meant=listed, all=("suite.time_one(1)", "suite.time_two"), problems=problems)


ONE, FAILS = Listed(name="one"), Listed(name="one", refused="ValueError")
SKIPPED, CHANGED = Listed(name="one", refused="skips it", is_skipped=True), Listed(name="one", version="2")


@pytest.mark.parametrize(
    ("base", "head", "both", "new", "note"),
    [
        ([ONE], [ONE], ["one"], [], None),
        ([], [ONE], [], ["one"], "one: new: nothing to hold it against"),
        ([FAILS], [ONE], [], [], "one: left out: base: ValueError"),
        ([FAILS], [FAILS], [], [], "one: left out: ValueError"),
        ([ONE], [SKIPPED], [], [], "one: left out: skips it"),
        ([ONE], [CHANGED], ["one"], [], "one: base and head have different code"),
        ([ONE, Listed(name="old")], [ONE], ["one"], [], "old: only base has it"),
    ],
)
def test_what_is_compared(base, head, both, new, note):
    chosen = choose(Selection(asv=".", pattern=True, threshold=0.1), listing(*base), listing(*head))
    assert ([benchmark.name for benchmark in chosen.both], [benchmark.name for benchmark in chosen.new]) == (both, new)
    assert [text.startswith(note) for text in chosen.notes] == ([True] if note else [])
    assert all((benchmark.workload, benchmark.threshold) == ("asv one", 0.1) for benchmark in chosen.both)


@pytest.mark.parametrize(
    ("base", "head", "pattern", "why"),
    [
        ([ONE], [FAILS], True, "benchmark 'one': head: ValueError"),
        ([FAILS], [FAILS], False, "benchmark 'one': head: ValueError"),
        (
            [ONE],
            [],
            False,
            "asv: 'suite.time_on': only base has it, did you mean 'suite.time_one'?; SyntaxError; allowed: ",
        ),
    ],
)
def test_what_a_gate_cannot_judge(base, head, pattern, why):
    named, new = Selection(asv="suite.time_on", pattern=pattern), listing(*head, problems=("SyntaxError",))
    with pytest.raises(GateError) as raised:
        choose(named, listing(*base), new)
    assert why in str(raised.value)


def change(base, head, counter="value (bytes)"):
    return CounterChange(benchmark="counts one", counter=counter, base=base, head=head, is_worse=head > base)


@pytest.mark.parametrize("tiers", [(0, 1), (1,)])
def test_values_are_left_out_without_tier_0(monkeypatch, tmp_path, tiers):
    value = BorrowedBenchmark(name="track_x", workload="asv track_x", threshold=0.02, is_value=True)
    monkeypatch.setattr(benchmarks, "look_up", lambda *_: Benchmarks(both=(value,)))
    settings = Settings(benchmarks=(), borrowed=(Selection(asv="."),))
    prepared = SimpleNamespace(tiers=tiers, settings=settings)
    chosen = choose_benchmarks(prepared, Sides(tmp_path, tmp_path, None), lambda *_: None)
    assert chosen.left_out == (() if 0 in tiers else ("track_x",))
    assert chosen.notes == (() if 0 in tiers else ("track_x: not compared: values are of tier 0",))


BUILD = 'build = "cp source/toy.py {folder}"'
TEST = "tests/test_speed.py::test_work"
CALLS = "forward.python_calls"


@pytest.mark.parametrize(
    ("first", "second", "kept", "notes", "gaps"),
    [
        (change(5, 6, CALLS), [change(5, 6, CALLS)], True, 0, 0),
        (change(5, 6, CALLS), [change(5, 7, CALLS)], False, 1, 0),
        (change(100, 111), [change(101, 112)], True, 0, 0),
        (change(100, 80), [change(101, 82)], True, 0, 0),
        (change(100, 105), [change(101, 104)], False, 0, 0),
        (change(100, 120), [], False, 0, 0),
        (change(100, 130), [change(120, 140)], False, 0, 1),
    ],
)
def test_two_counts_must_agree(first, second, kept, notes, gaps):
    changes, differing, unclear = settled([first], second, {"counts one": 0.1})
    assert (changes == [first], len(differing), len(unclear)) == (kept, notes, gaps)


def test_a_file_may_have_borrowed_benchmarks_alone(tmp_path):
    (tmp_path / "gate.toml").write_text(
        'build = ""\n[[benchmark]]\npytest = "a.py::b"\ncores = "all"\nthreshold = "5%"\n'
    )
    settings = load_settings(tmp_path / "gate.toml")
    assert (settings.benchmarks, settings.build) == ((), "")
    assert settings.borrowed == (Selection(pytest="a.py::b", cores=Cores.ALL, threshold=0.05),)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    folder = make_project(tmp_path_factory.mktemp("borrowed") / "repository")
    git(folder, "init", "--quiet")
    commit(folder, "base")
    commit(folder, "equal")
    edited(folder, "source/toy.py", "return sum(", "return sum([1]) + sum(i for i in range(n)) + sum(")
    commit(folder, "slow")
    return folder


@pytest.fixture
def gate(repository, tmp_path):
    def call(head, *words, settings="gate.toml"):
        usual = ("--base", "base", "--head", head, "--results", tmp_path / "results", "--json")
        temporary = tmp_path / "temporary"
        temporary.mkdir(exist_ok=True)
        done = subprocess.run(
            command(*usual, "--settings", settings, *words),
            cwd=repository,
            env=environment(temporary),
            capture_output=True,
            text=True,
            check=False,
        )
        assert list(temporary.glob("dpbench*")) == []
        return done

    return call


@pytest.mark.parametrize(
    ("option", "text", "name"),
    [("--asv", "^speed.time_work$", "speed.time_work"), ("--pytest", TEST, TEST)],
)
def test_equal_code_is_not_slower_and_a_doubled_function_is(gate, option, text, name):
    equal = json.loads(gate("equal", option, text, "--budget", "12s").stdout)
    assert equal["verdict"] in ("pass", "undecided")
    assert (equal["counters"], equal["counted_cases"]) == ([], 1)
    assert [time["benchmark"] for time in equal["times"]] == [name]
    slow = json.loads(gate("slow", option, text, "--tiers", "1", "--budget", "60s").stdout)
    assert (slow["verdict"], slow["exit_code"]) == ("slower", 1)
    assert slow["times"][0]["ratio"]["value"] > 1.3
    assert slow["environment"]["torch"] != ""


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (
            'build = "echo no room; false"\n[[benchmark]]\nasv = "speed.time_work"\n',
            "base: build: 'echo no room; false' ended with exit status 1; its last lines: no room",
        ),
        (
            'build = "cp source/toy.py {folder}"\n[[benchmark]]\nasv = "speed.time_wrk"\n',
            "did you mean 'speed.time_work'?",
        ),
        (
            'build = ""\n[[benchmark]]\npytest = "tests/none.py::a"\n',
            "pytest: 'tests/none.py::a': head has no such benchmark",
        ),
    ],
)
def test_a_gate_that_cannot_judge_says_so_in_one_line(gate, tmp_path, settings, why):
    (tmp_path / "settings.toml").write_text(settings)
    done = gate("equal", settings=tmp_path / "settings.toml")
    assert done.returncode == 3
    assert why in done.stderr
    assert done.stderr.count("dpbench: ") == 1


@pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock")
def test_a_build_writes_in_its_own_folders_alone(gate, tmp_path):
    (tmp_path / "settings.toml").write_text(
        f'build = "touch {{folder}}/in build.log && touch {tmp_path}/out"\n[[benchmark]]\nasv = "speed.time_work"\n'
    )
    done = gate("equal", settings=tmp_path / "settings.toml")
    assert done.returncode == 3
    assert f"its last lines: touch: cannot touch '{tmp_path}/out': Permission denied" in done.stderr
    assert not (tmp_path / "out").exists()
