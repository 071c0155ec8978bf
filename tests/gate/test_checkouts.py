"""A commit's folder is what a checkout has, and the user's repository stays as it is."""

import os
import shutil
import subprocess

import pytest

from dpbench.errors import GateError
from dpbench.gate.revisions import Repository
from dpbench.gate.sides import contents, first_change
from tests.cli.repositories import git


@pytest.fixture
def folder(tmp_path):
    """A repository with a tag, an executable file, and paths that `git archive` leaves out or rewrites."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch", "main")
    (folder / "bench").mkdir()
    for name in ("bench/b.py", "run.sh", "version.txt", "text.txt"):
        (folder / name).write_text("$Format:%H$\n")
    (folder / "run.sh").chmod(0o755)
    (folder / ".gitattributes").write_text("bench export-ignore\nversion.txt export-subst\n")
    commit(folder, "first")
    git(folder, "tag", "--annotate", "v1.2.0", "-m", "released")
    return folder


def commit(folder, subject):
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", subject)


@pytest.fixture
def written(folder, tmp_path):
    """Write HEAD, and return the folder. The repository must stay as it was, byte for byte."""

    def write(revision="HEAD"):
        before, new = contents(folder), tmp_path / "written"
        repository = Repository(folder)
        if revision == "worktree":
            repository.changed_files(tmp_path / "results")
            repository.write_working_tree(new)
        else:
            repository.write_commit(git(folder, "rev-parse", revision), new)
        assert first_change(before, contents(folder)) is None
        return new

    return write


@pytest.mark.parametrize("revision", ["HEAD", "worktree"])
def test_attributes_of_archives_do_not_count_and_modes_stay(folder, written, revision):
    os.utime(folder / "text.txt", (1, 1))  # `git status` would refresh the index
    new = written(revision)
    assert (new / "bench/b.py").read_text() == (new / "version.txt").read_text() == "$Format:%H$\n"
    assert os.access(new / "run.sh", os.X_OK)
    assert not os.access(new / "text.txt", os.X_OK)


@pytest.mark.parametrize("revision", ["HEAD", "worktree"])
def test_tools_that_ask_git_find_the_tags_the_commit_and_its_files(folder, written, revision):
    commit(folder, "second")
    new = written(revision)
    assert git(new, "describe").startswith("v1.2.0-1-g")
    assert git(new, "rev-parse", "HEAD") == git(folder, "rev-parse", "HEAD")
    assert set(git(new, "ls-files").split()) == set(git(folder, "ls-files").split())
    assert git(new, "status", "--porcelain") == ""
    assert git(new, "rev-list", "--count", "HEAD") == "2"


def test_a_change_that_is_not_committed_makes_the_working_trees_version_dirty(folder, written):
    (folder / "text.txt").write_text("changed")
    (folder / "staged.txt").write_text("new")
    git(folder, "add", "staged.txt")
    new = written("worktree")
    assert git(new, "describe", "--dirty").endswith("-dirty")
    assert "staged.txt" in git(new, "ls-files")


@pytest.fixture
def submodule(folder, tmp_path):
    """Add a submodule with one of its own. Return its folder in the repository."""
    for name, inner in (("inner", None), ("outer", "inner")):
        other = tmp_path / name
        other.mkdir()
        git(other, "init", "--quiet")
        (other / f"{name}.txt").write_text(name)
        (other / "tool.sh").write_text("true")
        (other / "tool.sh").chmod(0o755)
        if inner:
            git(other, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(tmp_path / inner), inner)
        commit(other, name)
    add = ("-c", "protocol.file.allow=always", "submodule", "--quiet")
    git(folder, *add, "add", "--name", "a name", str(tmp_path / "outer"), "libs/outer")
    git(folder, *add, "update", "--init", "--recursive")
    commit(folder, "with a submodule")
    return folder / "libs/outer"


@pytest.mark.parametrize("revision", ["HEAD", "worktree"])
def test_submodules_are_there_with_their_own(submodule, written, revision):
    new = written(revision) / "libs/outer"
    assert (new / "outer.txt").read_text() == "outer"
    assert (new / "inner/inner.txt").read_text() == "inner"
    assert os.access(new / "inner/tool.sh", os.X_OK)
    assert git(new, "rev-parse", "HEAD") == git(submodule, "rev-parse", "HEAD")


def test_a_submodule_has_the_commit_that_is_asked_for_and_not_what_is_checked_out(folder, submodule, written):
    (submodule / "outer.txt").write_text("newer")
    commit(submodule, "newer")
    commit(folder, "newer submodule")
    git(folder, "rm", "--quiet", "--cached", "libs/outer")
    shutil.rmtree(submodule)
    assert (written("HEAD~1") / "libs/outer/outer.txt").read_text() == "outer"


def test_a_submodule_that_was_never_initialised_stays_empty_as_in_a_checkout(folder, submodule, written):
    git(folder, "submodule", "--quiet", "deinit", "--all", "--force")
    shutil.rmtree(folder / ".git/modules")
    assert list((written() / "libs/outer").iterdir()) == []


@pytest.mark.parametrize("name", ["../../outside", "/outside"])
def test_a_submodules_name_leads_to_no_other_repository(folder, submodule, tmp_path, name):
    text = (folder / ".gitmodules").read_text().replace("a name", name)
    (folder / ".gitmodules").write_text(text)
    git(folder, "add", ".gitmodules")
    git(folder, "commit", "--quiet", "-m", "led astray")
    shutil.move(folder / ".git/modules/a name", tmp_path / "outside")
    Repository(folder).write_commit(git(folder, "rev-parse", "HEAD"), tmp_path / "written")
    assert list((tmp_path / "written/libs/outer").iterdir()) == []


SETTINGS = {
    "core.quotePath": "true",
    "core.sparseCheckout": "true",
    "core.hooksPath": "hooks",
    "core.fsmonitor": "hooks/fsmonitor",
    "color.ui": "always",
    "color.status": "always",
    "diff.renames": "copies",
    "log.decorate": "full",
    "log.follow": "true",
    "log.showRoot": "true",
    "log.showSignature": "true",
    "status.branch": "true",
    "status.relativePaths": "true",
    "status.renames": "copies",
    "status.short": "true",
    "status.showUntrackedFiles": "no",
    "submodule.recurse": "true",
    "core.untrackedCache": "true",
    "core.splitIndex": "true",
}


@pytest.mark.parametrize("revision", ["HEAD", "worktree"])
def test_settings_of_the_user_change_neither_what_git_prints_nor_what_is_written(folder, written, tmp_path, revision):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    signing = {"gpg.format": "ssh", "user.signingkey": str(tmp_path / "key"), "commit.gpgsign": "true"}
    (folder / "hooks").mkdir()
    for hook in ("post-checkout", "fsmonitor", "reference-transaction", "post-index-change"):
        (folder / "hooks" / hook).write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        (folder / "hooks" / hook).chmod(0o755)
    for name, value in signing.items():
        git(folder, "config", name, value)
    commit(folder, "signed ü")
    (folder / "run.sh").rename(folder / "moved ü.sh")
    for name, value in SETTINGS.items():
        git(folder, "-c", "core.hooksPath=/dev/null", "config", name, value)
    (folder / ".git/info/sparse-checkout").write_text("/text.txt\n")
    new, repository = written(revision), Repository(folder)
    assert (new / "bench/b.py").exists()
    assert repository.resolve("--head", "HEAD").subject == "signed ü"
    assert len(repository.dates()) == 2
    assert repository.changed_files(tmp_path / "results") == ["run.sh", "moved ü.sh"]
    assert not (tmp_path / "ran").exists()


def test_filters_and_line_ends_are_those_of_the_users_own_checkout(folder, written):
    (folder / ".gitattributes").write_text("*.txt filter=shout\nrun.sh eol=crlf\n")
    git(folder, "config", "filter.shout.smudge", "tr a-z A-Z")
    commit(folder, "filtered")
    new = written()
    assert (new / "text.txt").read_text() == "$FORMAT:%H$\n"
    assert (new / "run.sh").read_bytes().endswith(b"\r\n")


def test_a_filter_that_fails_is_one_line_with_the_reason_of_git(folder, written):
    (folder / ".gitattributes").write_text("*.txt filter=large\n")
    commit(folder, "filtered")
    git(folder, "config", "filter.large.smudge", "false")
    git(folder, "config", "filter.large.required", "true")
    with pytest.raises(GateError, match=r": [0-9a-f]{10} cannot be written; git: .*") as raised:
        written()
    assert "\n" not in str(raised.value)


def test_a_shallow_clone_and_a_linked_worktree_serve(folder, tmp_path):
    commit(folder, "second")
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{folder}", "shallow")
    git(folder, "worktree", "add", "--quiet", "--detach", str(tmp_path / "linked"))
    for name in ("shallow", "linked"):
        Repository(tmp_path / name).write_commit(git(folder, "rev-parse", "HEAD"), tmp_path / f"from {name}")
        assert (tmp_path / f"from {name}/bench/b.py").exists()
        assert git(tmp_path / f"from {name}", "rev-list", "--count", "HEAD") == ("1" if name == "shallow" else "2")


@pytest.mark.parametrize("revision", ["HEAD", "worktree"])
def test_variables_of_a_git_hook_lead_nowhere_else(folder, tmp_path, monkeypatch, revision):
    """In a hook of a linked worktree these are absolute. Those of another repository must not count."""
    commit_of = git(folder, "rev-parse", "HEAD")
    git(tmp_path, "init", "--quiet", "other")
    before = contents(tmp_path / "other"), contents(folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GIT_DIR", str(folder / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(folder))
    repository = Repository(folder)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other/.git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "other/.git/index"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(tmp_path / "other/.git/objects"))
    if revision == "worktree":
        repository.write_working_tree(tmp_path / "new")
    else:
        repository.write_commit(commit_of, tmp_path / "new")
    assert (tmp_path / "new/bench/b.py").exists()
    assert (tmp_path / "new/.git/HEAD").read_text().strip() == commit_of
    assert (contents(tmp_path / "other"), contents(folder)) == before


def test_a_repository_whose_git_directory_is_elsewhere_serves(folder, tmp_path):
    git(tmp_path, "clone", "--quiet", "--separate-git-dir", str(tmp_path / "aside"), str(folder), "clone")
    git(tmp_path / "clone", "config", "extensions.worktreeConfig", "true")
    Repository(tmp_path / "clone").write_commit(git(folder, "rev-parse", "HEAD"), tmp_path / "new")
    assert (tmp_path / "new/bench/b.py").exists()


def test_a_repository_of_the_other_hash_serves(tmp_path):
    folder = tmp_path / "sha256"
    folder.mkdir()
    git(folder, "init", "--quiet", "--object-format=sha256")
    (folder / "file").write_text("text")
    commit(folder, "first")
    Repository(folder).write_commit(git(folder, "rev-parse", "HEAD"), tmp_path / "new")
    assert git(tmp_path / "new", "status", "--porcelain") == ""
