"""Whole gates of strangers' commits: what is lost or left out is said first, and wrong code does not pass."""

import json
import subprocess

import pytest

from tests.cli.repositories import command, commit, edited, environment, git

BENCHMARKS = """
import toy

def time_work():
    toy.work(50)

def time_other():
    toy.other()

def time_never():
    raise NotImplementedError

def track_size():
    return toy.size()
"""
TOY = "def work(n):\n    return sum(range(n))\n\ndef other():\n    pass\n\ndef size():\n    return 3\n"
TEST = "import toy\n\ndef test_work(benchmark):\n    assert benchmark(toy.work, 10) == 45\n"
ALL = ("--asv", ".")


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    folder = tmp_path_factory.mktemp("foreign") / "repository"
    files = {
        "toy.py": TOY,
        "suite/__init__.py": "",
        "suite/b.py": BENCHMARKS,
        "asv.conf.json": '{"repo": ".", "benchmark_dir": "suite"}',
        "tests/test_b.py": TEST,
        ".gitattributes": "suite export-ignore\ntests export-ignore\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "init", "--quiet", "--initial-branch", "main")
    commit(folder, "base")
    commit(folder, "equal")
    edited(folder, "toy.py", "    pass", "    raise NotImplementedError('not yet')")
    commit(folder, "skips")
    edited(folder, "suite/b.py", "def time_other", "def other")
    commit(folder, "lacks")
    edited(folder, "suite/b.py", "def time_other", "def other")
    edited(folder, "toy.py", "return sum(range(n))", "return any(other() for _ in range(30)) or sum(range(n))")
    commit(folder, "worse")
    edited(folder, "toy.py", "return 3", "return None")
    commit(folder, "valueless")
    edited(folder, "toy.py", "return sum(range(n))", "return 0")
    commit(folder, "wrong")
    return folder


def gate(repository, tmp_path, head, *words):
    (tmp_path / "gate.toml").write_text('build = ""\nalarm_rate = 0.2\n')
    usual = ("--base", "base", "--head", head, "--results", tmp_path / "results", "--settings", tmp_path / "gate.toml")
    (tmp_path / "temporary").mkdir(exist_ok=True)
    done = subprocess.run(
        command(*usual, "--json", "--tiers", "0", *words),
        cwd=repository,
        env=environment(tmp_path / "temporary"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert list((tmp_path / "temporary").glob("dpbench*")) == []
    return done.returncode, json.loads(done.stdout)["why"] if done.returncode != 3 else done.stderr


NEVER = "1 left out: b.time_never"
LOST = "1 skipped or gone on head: b.time_other"


@pytest.mark.parametrize(
    ("head", "words", "expected"),
    [
        ("equal", ALL, (0, f"no counter is worse; {NEVER}")),
        ("equal", ("--pytest", "tests"), (0, "no counter is worse")),
        ("skips", ALL, (4, f"{LOST}; {NEVER}")),
        ("lacks", ALL, (4, f"{LOST}; {NEVER}")),
        ("skips", ("--asv", "other"), (4, f"{LOST}; nothing was compared")),
        ("worse", ALL, (1, f"worse in 1 of 2 counted cases (counts b.time_work): forward.python_calls *; {NEVER}")),
        ("valueless", ALL, (3, "benchmark 'b.track_size': head: its value is None; allowed: a finite number")),
        ("wrong", ("--pytest", "tests"), (3, "test_work': head: its test fails: assert 0 == 45")),
        ("equal", ("--asv", "track", "--tiers", "1"), (4, "nothing was compared; 1 left out: b.track_size")),
    ],
)
def test_the_verdict_and_its_first_line(repository, tmp_path, head, words, expected):
    code, text = gate(repository, tmp_path, head, *words)
    assert code == expected[0], text
    assert all(part in text for part in expected[1].split("*")), text
