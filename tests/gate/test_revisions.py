"""Writing commits of real repositories into folders."""

import os
import subprocess
import tempfile
import time

import pytest

from dpbench.errors import GateError
from dpbench.gate.revisions import Repository, gate_folder
from dpbench.report.gate.forms import gate_markdown
from dpbench.report.gate.per_benchmark import gate_junit
from dpbench.report.gate.verdict_tables import revision
from tests.cli.repositories import git
from tests.report.gate.making_gate import judged


@pytest.fixture
def folder(tmp_path):
    """A repository of two commits; the second has a link, a file in a folder and .gitignore."""
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
    paths = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    return {name for name in paths if not name.startswith(".git/")}


def test_a_revision_is_a_whole_hash_and_the_first_line_of_its_message(folder):
    resolved = Repository(folder / "in").resolve("--base", "one")
    assert (resolved.asked, resolved.commit) == ("one", git(folder, "rev-parse", "one"))
    assert resolved.subject == "the first: with  two spaces"


def test_names_and_subjects_in_no_known_encoding_are_read(folder):
    name = os.fsdecode(b"\xff odd")
    (folder / name).write_text("odd")
    repository = Repository(folder)
    assert repository.changed_files(folder / "results") == [name]
    repository.write_working_tree(folder.parent / "working")
    assert (folder.parent / "working" / name).read_text() == "odd"
    git(folder, "config", "i18n.logOutputEncoding", "ISO-8859-1")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "größer")
    assert repository.resolve("--head", "HEAD").subject.startswith("gr")


def test_a_repository_that_git_refuses_raises_with_the_reason_of_git(folder, monkeypatch):
    for name, value in (("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1"), ("GIT_CONFIG_GLOBAL", os.devnull)):
        monkeypatch.setenv(name, value)
    with pytest.raises(GateError, match=r"is in no git repository; git: fatal: detected dubious ownership"):
        Repository(folder)


@pytest.mark.parametrize("revision", ["nowhere", "", "-h", "--all", "HEAD:first.txt", "HEAD..one", "HEAD~7"])
def test_text_that_names_no_commit_raises_with_its_option(folder, revision):
    with pytest.raises(GateError, match=r"^--base: .* is no revision here; allowed: ") as caught:
        Repository(folder).resolve("--base", revision)
    assert repr(revision) in str(caught.value)


def test_the_base_is_where_head_left_the_branch_and_not_its_tip(folder):
    git(folder, "checkout", "--quiet", "-b", "feature", "one")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "on the feature")
    repository = Repository(folder)
    feature, (one, main) = git(folder, "rev-parse", "feature"), git(folder, "rev-parse", "one", "main").split()
    merge_base = repository.merge_base(repository.resolve("--base", "main"), feature)
    assert (merge_base.asked, merge_base.commit, merge_base.tip) == ("main", one, main)
    assert merge_base.subject == "the first: with  two spaces"
    assert revision(merge_base) == f"{one[:10]} (merge base with main, {main[:10]}) the first: with two spaces"
    ancestor = repository.resolve("--base", "one")
    assert repository.merge_base(ancestor, feature) == ancestor


def test_a_tree_with_a_link_and_a_folder_of_one_name_writes_nothing_outside(folder, tmp_path):
    outside, file = tmp_path / "outside", tmp_path / "object"
    outside.mkdir()
    file.write_text(str(outside))
    link, below = git(folder, "hash-object", "-w", str(file)), git(folder, "rev-parse", "HEAD:in")
    file.write_bytes(
        b"".join(b"%s in\0%s" % (mode, bytes.fromhex(of)) for mode, of in ((b"120000", link), (b"40000", below)))
    )
    tree = git(folder, "hash-object", "-t", "tree", "-w", "--literally", str(file))
    commit = git(folder, "commit-tree", tree, "-m", "bad")
    Repository(folder).write_commit(commit, tmp_path / "out")
    assert list(outside.iterdir()) == []


def test_commits_without_a_common_one_raise_and_name_the_option(folder):
    git(folder, "checkout", "--quiet", "--orphan", "other")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "a second root")
    repository = Repository(folder)
    with pytest.raises(GateError, match=r"^--base: 'one' has no common commit with .*; allowed: --base-exact"):
        repository.merge_base(repository.resolve("--base", "one"), git(folder, "rev-parse", "other"))


def test_what_earlier_gates_wrote_is_no_change_unless_git_tracks_it(folder, results):
    (folder / "gate.md").write_text(gate_markdown(judged()))
    (folder / "in" / "gate.xml").write_text(gate_junit(judged()))
    for number, text in enumerate(("", "<?xml ?><testsuites/>", "# dpbench gate", "<!-- dpbench")):
        (folder / f"{number}.txt").write_text(text)
    os.mkfifo(results.with_name("pipe"))
    (folder / "4.txt").symlink_to(results.with_name("pipe"))
    repository = Repository(folder)
    assert repository.changed_files(results) == [f"{number}.txt" for number in range(5)]
    git(folder, "add", "gate.md")
    assert "gate.md" in repository.changed_files(results)


def test_commits_between_are_those_of_head_without_those_of_base(folder):
    repository, (one, two) = Repository(folder), git(folder, "rev-parse", "one", "main").split()
    assert repository.commits_between(one, two) == {two}
    assert repository.commits_between(two, one) == frozenset()


def test_dates_are_those_of_all_branches(folder):
    git(folder, "checkout", "--quiet", "-b", "other", "one")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "beside")
    dates = Repository(folder).dates()
    assert set(dates) == set(git(folder, "rev-list", "--all").split())
    assert all(abs(date - time.time()) < 3600 for date in dates.values())


def test_a_commit_is_written_as_it_was_and_the_working_tree_stays(folder, tmp_path):
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


def test_links_out_of_the_folder_are_kept(folder, tmp_path):
    (folder / "absolute").symlink_to("/nowhere/at/all")
    (folder / "in/outside").symlink_to("../../outside.txt")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "links")
    Repository(folder).write_commit("HEAD", tmp_path / "new")
    assert os.readlink(tmp_path / "new/absolute") == "/nowhere/at/all"
    assert os.readlink(tmp_path / "new/in/outside") == "../../outside.txt"


def test_the_working_tree_is_written_without_ignored_and_deleted_files(folder, tmp_path):
    (folder / "new ü.txt").write_text("new")
    (folder / "built.out").write_text("built")
    (folder / "in/it/ä file.txt").unlink()
    (folder / "first.txt").write_text("3")
    Repository(folder).write_working_tree(tmp_path / "working")
    assert files(tmp_path / "working") == {".gitignore", "first.txt", "link", "new ü.txt"}
    assert (tmp_path / "working/first.txt").read_text() == "3"


def test_links_of_the_working_tree_and_of_a_commit_stay_links(folder, tmp_path):
    (folder / "way in").symlink_to("in", target_is_directory=True)
    (folder / "dangling").symlink_to("nowhere")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "links")
    Repository(folder).write_working_tree(tmp_path / "working")
    Repository(folder).write_commit("HEAD", tmp_path / "commit")
    for side in ("working", "commit"):
        links = {path.name: os.readlink(path) for path in (tmp_path / side).iterdir() if path.is_symlink()}
        assert links == {"link": "first.txt", "way in": "in", "dangling": "nowhere"}
        assert (tmp_path / side / "way in/it/ä file.txt").read_text() == "deep"


def test_changed_files_are_named_except_results(folder, results):
    repository = Repository(folder)
    assert repository.changed_files(results) == []
    (folder / "first.txt").write_text("3")
    (folder / "in/it/new ü.txt").touch()
    (folder / "built.out").touch()
    (folder / "results").mkdir()
    (folder / "results/gate.jsonl").touch()
    assert repository.changed_files(folder / "results") == ["first.txt", "in/it/new ü.txt"]
    assert "results/gate.jsonl" in repository.changed_files(results)


def test_no_repository_an_unknown_commit_and_a_missing_git_raise(tmp_path, folder, monkeypatch):
    with pytest.raises(GateError, match="is in no git repository"):
        Repository(tmp_path)
    with pytest.raises(GateError, match=r"/x': 0123456789 cannot be written; git: "):
        Repository(folder).write_commit("0123456789" * 4, tmp_path / "x")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GateError, match=r"git cannot be started: .*; allowed: git on the PATH"):
        Repository(folder)


def test_a_folder_that_cannot_be_written_raises(folder, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(GateError, match="cannot be written: Not a directory"):
        Repository(folder).write_working_tree(tmp_path / "file/x")


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


def test_a_gates_folder_is_removed_after_success_and_after_an_interrupt(temporary):
    with gate_folder() as folder:
        (folder / "base").mkdir()
        assert list(temporary.iterdir()) == [folder]
    with pytest.raises(KeyboardInterrupt), gate_folder():
        raise KeyboardInterrupt
    assert list(temporary.iterdir()) == []


def test_folders_of_dead_gates_are_removed_and_those_of_living_gates_stay(temporary):
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


def test_a_temporary_directory_that_cannot_be_written_raises(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(GateError, match="cannot be written: No such file"), gate_folder():
        pytest.fail("made")


def test_no_temporary_directory_raises(monkeypatch):
    def nowhere():
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    with pytest.raises(GateError, match=r"^TMPDIR: No usable temporary directory found in \['/tmp'\]; allowed: "):
        gate_folder().__enter__()
