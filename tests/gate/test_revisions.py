"""Commits as folders, out of real repositories."""

import os
import subprocess
import tempfile
import time

import pytest

from dpbench.errors import GateError
from dpbench.gate.revisions import Repository, gate_folder
from tests.cli.repositories import git


@pytest.fixture
def folder(tmp_path):
    """Two commits; the second has a link, a file in a folder, an executable and a file that git ignores."""
    folder = tmp_path / "a repository"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch", "main")
    (folder / "first.txt").write_text("1")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "the first: with  two spaces\n\nand a body")
    git(folder, "tag", "one")
    (folder / "in/it").mkdir(parents=True)
    (folder / "in/it/ä file.txt").write_text("deep")
    (folder / ".gitignore").write_text("*.out\n")
    (folder / "first.txt").write_text("2")
    (folder / "link").symlink_to("first.txt")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "the second")
    return folder


@pytest.fixture
def results(tmp_path):
    return tmp_path / "results"


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_revision_is_a_whole_hash_and_the_first_line_of_its_message(folder):
    found = Repository(folder / "in").resolve("--base", "one")
    assert (found.asked, found.commit) == ("one", git(folder, "rev-parse", "one"))
    assert found.subject == "the first: with  two spaces"


def test_names_and_subjects_in_no_known_encoding_are_read(folder):
    name = os.fsdecode(b"\xff odd")
    (folder / name).write_text("odd")
    repository = Repository(folder)
    assert repository.changed_files(folder / "results") == [name]
    repository.write_tree(folder.parent / "tree")
    assert (folder.parent / "tree" / name).read_text() == "odd"
    git(folder, "config", "i18n.logOutputEncoding", "ISO-8859-1")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "größer")
    assert repository.resolve("--head", "HEAD").subject.startswith("gr")


def test_a_repository_that_git_refuses_is_told_with_gits_reason(folder, monkeypatch):
    for name, value in (("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1"), ("GIT_CONFIG_GLOBAL", os.devnull)):
        monkeypatch.setenv(name, value)
    with pytest.raises(GateError, match=r"is in no git repository; git: fatal: detected dubious ownership"):
        Repository(folder)


@pytest.mark.parametrize("revision", ["nowhere", "", "-h", "--all", "HEAD:first.txt", "HEAD..one", "HEAD~7"])
def test_what_is_no_commit_is_refused_with_the_option_it_came_by(folder, revision):
    with pytest.raises(GateError, match=r"^--base: .* is no revision here; allowed: ") as caught:
        Repository(folder).resolve("--base", revision)
    assert repr(revision) in str(caught.value)


def test_commits_between_are_those_that_head_has_alone(folder):
    repository, (one, two) = Repository(folder), git(folder, "rev-parse", "one", "main").split()
    assert repository.commits_between(one, two) == {two}
    assert repository.commits_between(two, one) == frozenset()


def test_dates_are_those_of_all_branches(folder):
    git(folder, "checkout", "--quiet", "-b", "other", "one")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "beside")
    dates = Repository(folder).dates()
    assert set(dates) == set(git(folder, "rev-list", "--all").split())
    assert all(abs(date - time.time()) < 3600 for date in dates.values())


def test_a_commit_is_written_as_it_was_and_the_users_tree_stays(folder, tmp_path):
    (folder / "first.txt").write_text("changed")
    before = git(folder, "status", "--porcelain")
    repository, (one, two) = Repository(folder), git(folder, "rev-parse", "one", "main").split()
    repository.write_commit(one, tmp_path / "one")
    repository.write_commit(two, tmp_path / "two")
    assert files(tmp_path / "one") == {"first.txt"}
    assert (tmp_path / "one/first.txt").read_text() == "1"
    assert files(tmp_path / "two") == {".gitignore", "first.txt", "link", "in/it/ä file.txt"}
    assert (tmp_path / "two/link").read_text() == "2"
    assert git(folder, "status", "--porcelain") == before


def test_links_may_lead_anywhere(folder, tmp_path):
    (folder / "absolute").symlink_to("/nowhere/at/all")
    (folder / "in/outside").symlink_to("../../outside.txt")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "links")
    Repository(folder).write_commit("HEAD", tmp_path / "new")
    assert os.readlink(tmp_path / "new/absolute") == "/nowhere/at/all"
    assert os.readlink(tmp_path / "new/in/outside") == "../../outside.txt"


def test_the_tree_is_written_as_it_is_without_what_is_ignored_or_gone(folder, tmp_path):
    (folder / "new ü.txt").write_text("new")
    (folder / "built.out").write_text("built")
    (folder / "in/it/ä file.txt").unlink()
    (folder / "first.txt").write_text("3")
    Repository(folder).write_tree(tmp_path / "tree")
    assert files(tmp_path / "tree") == {".gitignore", "first.txt", "link", "new ü.txt"}
    assert (tmp_path / "tree/first.txt").read_text() == "3"


def test_links_of_the_tree_stay_links_as_those_of_a_commit_do(folder, tmp_path):
    (folder / "way in").symlink_to("in", target_is_directory=True)
    (folder / "dangling").symlink_to("nowhere")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "links")
    Repository(folder).write_tree(tmp_path / "tree")
    Repository(folder).write_commit("HEAD", tmp_path / "commit")
    for side in ("tree", "commit"):
        links = {path.name: os.readlink(path) for path in (tmp_path / side).iterdir() if path.is_symlink()}
        assert links == {"link": "first.txt", "way in": "in", "dangling": "nowhere"}
        assert (tmp_path / side / "way in/it/ä file.txt").read_text() == "deep"


def test_changed_files_are_named_but_for_the_results(folder, results):
    repository = Repository(folder)
    assert repository.changed_files(results) == []
    (folder / "first.txt").write_text("3")
    (folder / "in/it/new ü.txt").touch()
    (folder / "built.out").touch()
    (folder / "results").mkdir()
    (folder / "results/gate.jsonl").touch()
    assert repository.changed_files(folder / "results") == ["first.txt", "in/it/new ü.txt"]
    assert "results/gate.jsonl" in repository.changed_files(results)


def test_where_git_knows_nothing_or_is_not_there(tmp_path, folder, monkeypatch):
    with pytest.raises(GateError, match="is in no git repository"):
        Repository(tmp_path)
    with pytest.raises(GateError, match=r"^0123456789: git archive failed: "):
        Repository(folder).write_commit("0123456789" * 4, tmp_path / "x")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GateError, match=r"git cannot be started: .*; allowed: git on the PATH"):
        Repository(folder)


def test_what_cannot_be_written_is_told(folder, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(GateError, match="cannot be written: Not a directory"):
        Repository(folder).write_tree(tmp_path / "file/x")


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def left_by(temporary, pid, started):
    folder = temporary / f"dpbench-gate-{pid}-{started}-abc"
    (folder / "base").mkdir(parents=True)
    return folder


def test_a_gates_folder_is_gone_at_its_end_however_it_ends(temporary):
    with gate_folder() as folder:
        (folder / "base").mkdir()
        assert list(temporary.iterdir()) == [folder]
    with pytest.raises(KeyboardInterrupt), gate_folder():
        raise KeyboardInterrupt
    assert list(temporary.iterdir()) == []


def test_what_dead_gates_left_goes_and_what_living_ones_have_stays(temporary):
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    dead = left_by(temporary, ended.pid, 0)
    reused = left_by(temporary, os.getpid(), 12345)
    unnamed = temporary / "dpbench-gate-"
    unnamed.mkdir()
    other = temporary / "dpbench-other"
    other.mkdir()
    with gate_folder() as living, gate_folder():
        assert living.is_dir()
        assert not dead.exists()
        assert not reused.exists()
        assert not unnamed.exists()
    assert list(temporary.iterdir()) == [other]


def test_a_place_that_cannot_be_written_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(GateError, match="cannot be written: No such file"), gate_folder():
        pytest.fail("made")


def test_no_place_for_the_folder_is_told(monkeypatch):
    def nowhere():
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    with pytest.raises(GateError, match=r"^TMPDIR: No usable temporary directory found in \['/tmp'\]; allowed: "):
        gate_folder().__enter__()
