"""Which of asv's files are read, and the errors for names that match none."""

import json
import subprocess

import pytest

from dpbench.asv.folder import commit_of, lacks, machine_in, units_in
from dpbench.asv.machine_file import AsvError
from dpbench.asv.result_file import Measured, ResultFile, ResultRow, write_results

ONE, TWIN, OTHER = "01234567" * 5, "01234567" + "f" * 32, "0123abcd" * 5


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A machine's folder with files of three commits, outside of any repository."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    for commit, environment in ((ONE, "shared"), (ONE, "records"), (TWIN, "twin"), (OTHER, "shared")):
        write(tmp_path / "here", commit, environment)
    return tmp_path / "here"


def write(folder, commit, environment, rows=()):
    file = ResultFile(
        commit_hash=commit, env_name=environment, date=0, params={}, python="3.11", requirements={}, results=dict(rows)
    )
    path = folder / f"{commit[:8]}-{environment}.json"
    write_results(path, file.with_row("b", ResultRow((("1",),), "1", {("1",): Measured(1.0)})))
    return path


@pytest.mark.parametrize("name", [ONE, ONE[:12]])
def test_a_commit_is_named_by_the_beginning_of_its_hash(folder, name):
    found = commit_of(name, "BASE", folder)
    assert (found.hash, set(found.files)) == (ONE, {"shared", "records"})


def test_a_commit_is_named_by_a_revision_of_git(folder):
    git = ("git", "-c", "user.name=nobody", "-c", "user.email=nobody@localhost")
    subprocess.run([*git, "init", "--quiet", "--initial-branch", "main"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "one"], check=True)
    subprocess.run([*git, "tag", "-a", "v1", "-m", "a tag is no commit"], check=True)
    done = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    commit = done.stdout.strip()
    with pytest.raises(AsvError, match=rf"^HEAD: 'main', commit {commit[:8]}, has no results in .*here; allowed: "):
        commit_of("main", "HEAD", folder)
    write(folder, commit, "shared")
    assert {commit_of(name, "BASE", folder).hash for name in ("main", "HEAD", "v1", commit[:4])} == {commit}


@pytest.mark.parametrize("name", ["nowhere", "--all", "", "012", "89ab", "*"])
def test_a_name_without_results_is_reported_in_one_line(folder, name):
    with pytest.raises(AsvError) as raised:
        commit_of(name, "BASE", folder)
    fault = f"has no results in {folder}; allowed: 01234567, 0123abcd, or a revision of them"
    assert str(raised.value) == f"BASE: {name!r} {fault}"


@pytest.mark.parametrize("name", ["0123", "01234567"])
def test_the_beginning_of_several_hashes_is_refused(folder, name):
    with pytest.raises(AsvError, match=f"^BASE: '{name}' begins several hashes in "):
        commit_of(name, "BASE", folder)


def test_a_corrupted_file_of_the_commit_is_named(folder):
    (folder / f"{OTHER[:8]}-shared.json").write_text("{")
    assert commit_of(ONE, "BASE", folder).hash == ONE
    with pytest.raises(AsvError, match=r"here/0123abcd-shared\.json: is not JSON"):
        commit_of(OTHER, "BASE", folder)
    path = write(folder, OTHER, "shared", rows={"broken": [["much"], [["1"]]]})
    with pytest.raises(AsvError, match=f"^{path}: broken: is not a row of results: result is 'much': Input should be"):
        commit_of(OTHER, "BASE", folder)


def test_the_machine_is_the_only_one_or_named(tmp_path):
    with pytest.raises(
        AsvError, match=r"^--machine: None does not .*; allowed: none, as .* has no results; first: asv"
    ):
        machine_in(tmp_path, None)
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "machine.json").write_text("{}")
        if name == "here":
            assert machine_in(tmp_path, None) == "here"
            with pytest.raises(AsvError, match=r"^--machine: 'there' does not name .*; allowed: here$"):
                machine_in(tmp_path, "there")
    assert machine_in(tmp_path, "there") == "there"
    for name in (None, "nowhere", "."):
        with pytest.raises(AsvError, match=rf"^--machine: {name!r} does not name .*; allowed: here, there$"):
            machine_in(tmp_path, name)


def test_units_come_from_asvs_list_of_benchmarks(tmp_path):
    assert units_in(tmp_path) == {}
    path = tmp_path / "benchmarks.json"
    path.write_text(json.dumps({"b": {"unit": "seconds", "name": "b"}, "version": 2}))
    assert units_in(tmp_path) == {"b": "seconds"}


@pytest.mark.parametrize("text", ["{", "[]", '{"b": {}}', '{"b": 1}'])
def test_a_corrupted_list_of_benchmarks_is_reported_in_one_line(tmp_path, text):
    (tmp_path / "benchmarks.json").write_text(text)
    with pytest.raises(
        AsvError, match=r"benchmarks\.json: is .*; allowed: what `asv run --bench just-discover` writes$"
    ):
        units_in(tmp_path)


def test_files_that_asv_needs_are_reported_with_the_command(tmp_path):
    (line,) = lacks(tmp_path, "here")
    assert line.endswith("here/machine.json; first: asv run --bench just-discover")
    assert f"{tmp_path}/benchmarks.json and " in line
    (tmp_path / "here").mkdir()
    (tmp_path / "here/machine.json").touch()
    (tmp_path / "benchmarks.json").touch()
    assert lacks(tmp_path, "here") == []
