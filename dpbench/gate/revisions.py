"""Write commits into folders, without touching the user's working tree, index or worktrees.

git writes a commit's files with an index of the gate's own, and records nothing in the repository. So a gate that is
killed leaves no worktree to prune. It leaves its temporary folder, unlocked, and the next gate removes that.
"""

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from dpbench.errors import GateError, GateInputError
from dpbench.gate.judgement import Revision
from dpbench.text.outside import one_line

OF_GIT = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR")
"""git sets these variables for hooks. They mean the user's repository, whatever folder git is started in."""
_PREFIX = "dpbench-gate-"
_NEW_PREFIX = "dpbench-new-gate-"
_COMMENT = b"<!-- dpbench gate -->"
_JUNIT = b'<testsuites name="dpbench gate"'
"""How the files of `--comment` and `--junit` begin, within their first bytes."""
_LONGEST_BEGIN = 100
_HASH = re.compile("[0-9a-f]{40,64}")
_SHA256_DIGITS = 64
_SUBMODULE = "160000 "
_SETTINGS = (
    "--no-optional-locks",  # `git status` would write the user's index
    *("-c", "log.showSignature=false"),
    *("-c", "color.ui=false"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.hooksPath=/dev/null"),  # writing an index runs a hook, whose file the commit may hold
    *("-c", "core.sparseCheckout=false"),
    *("-c", "core.splitIndex=false"),  # its shared part would lie in the user's repository
)
"""Then git prints the same, and writes whole commits, whatever the user's settings are."""
_ALLOWED = "what `git rev-parse` knows as a commit, such as main, HEAD~1, v1.2 or a hash"


class Repository:
    """The git repository that contains `folder`. Raise GateError if there is none."""

    def __init__(self, folder: Path) -> None:
        words, what = ("rev-parse", "--show-toplevel", "--absolute-git-dir"), f"{str(folder)!r} is in no git repository"
        printed = _run_git(("-C", str(folder)), *words, what=what, kind=GateInputError)
        root, _, directory = printed.partition("\n")
        self.root, self._where = Path(root), _where(root, directory)

    def resolve(self, option: str, revision: str) -> Revision:
        """Raise GateError, which names the command-line `option`, if `revision` names no commit."""
        asked = f"{option}: {revision!r} is no revision here; allowed: {_ALLOWED}"
        if revision.startswith("-") or "\0" in revision:
            raise GateInputError(asked)
        words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        commit = _run_git(self._where, *words, what=asked, kind=GateInputError)
        if not _HASH.fullmatch(commit):  # such as ^main, which names all commits but those of main
            raise GateInputError(asked)
        subject = self._git("log", "-1", "--format=%s", commit, what=asked)
        return Revision(asked=revision, commit=commit, subject=subject)

    def merge_base(self, base: Revision, head: str) -> Revision:
        """The last common commit, or `base` itself if head has all of its commits. Raise GateError if there is none."""
        why = f"--base: {base.asked!r} has no common commit with {head[:10]}"
        commit = self._git("merge-base", str(base.commit), head, what=f"{why}; allowed: --base-exact, or a full clone")
        if commit == base.commit:
            return base
        subject = self._git("log", "-1", "--format=%s", commit, what=why)
        return Revision(asked=base.asked, commit=commit, subject=subject, tip=base.commit)

    def changed_files(self, besides: Path) -> list[str]:
        """Files that differ from HEAD or are untracked.

        Ignored files, those in `besides`, and untracked results of earlier gates are left out.
        """
        listed = self._git("status", "--porcelain", "-z", "--untracked-files=all", what="git status failed")
        entries = [(entry[:2], entry[3:]) for entry in listed.split("\0") if entry[2:3] == " "]
        return [
            name
            for state, name in entries
            if not (self.root / name).is_relative_to(besides.resolve())
            and not (state == "??" and _is_gates_own(self.root / name))
        ]

    def tracked_files(self) -> list[str]:
        return self._git("ls-files", "-z", "--cached", what="git ls-files failed").split("\0")

    def commits_between(self, base: str, head: str) -> frozenset[str]:
        """The full hashes of commits that head has and base has not."""
        return frozenset(self._git("rev-list", f"{base}..{head}", what="git rev-list failed").split())

    def dates(self) -> dict[str, float]:
        """The date of each commit of HEAD and all branches, in seconds since 1970."""
        listed = self._git("log", "--all", "HEAD", "--format=%H %ct", what="git log failed")
        return {line.split()[0]: float(line.split()[1]) for line in listed.splitlines()}

    def write_commit(self, commit: str, folder: Path) -> None:
        """Write a checkout of a commit into `folder`, which is made: its files, its submodules, a `.git` of its own."""
        with _reporting_disk_errors(folder):
            _check_out(self._where, commit, folder.absolute())

    def write_working_tree(self, folder: Path) -> None:
        """Write the present files that git does not ignore into `folder`, which is made, and a `.git` of its own."""
        listed = self._git("ls-files", "-z", "--cached", "--others", "--exclude-standard", what="git ls-files failed")
        entries = self._git("ls-files", "-z", "--stage", what="git ls-files failed")
        where = self._where
        with _reporting_disk_errors(folder):
            _make_repository(where, self._git("rev-parse", "HEAD", what="HEAD has no commit"), folder)
            index, what = folder.absolute() / ".git/index", "git update-index failed"
            _run_git(where, "update-index", "-z", "--index-info", what=what, index=index, text=entries)
            for name in filter(None, listed.split("\0")):
                source, target = self.root / name, folder / name
                if source.is_file() or source.is_symlink():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(source, target, follow_symlinks=False)
                elif name in _submodules(entries) and (source / ".git").exists():
                    Repository(source).write_working_tree(target)

    def _git(self, *words: str, what: str) -> str:
        return _run_git(self._where, *words, what=what)


def _where(root: str, directory: str) -> tuple[str, ...]:
    """Return the options of git that mean a repository, wherever git is started."""
    return ("-C", root, "--git-dir", directory, "--work-tree", root)


def _run_git(
    where: Sequence[str],
    *words: str,
    what: str,
    index: Path | None = None,
    text: str | None = None,
    kind: type[GateError] = GateError,
) -> str:
    """Return what git prints, whatever the user's settings are. It writes no file of the repository but `index`.

    `where` are the options that say which repository. Raises an error of `kind` with `what` and git's own reason.
    """
    is_known = "--git-dir" in where or "init" in words
    environment = {name: value for name, value in os.environ.items() if not (is_known and name in OF_GIT)}
    environment |= {} if index is None else {"GIT_INDEX_FILE": str(index)}
    command = ["git", *where, *_SETTINGS, *words]
    stdin = None if text is None else os.fsencode(text)
    try:
        done = subprocess.run(command, capture_output=True, check=False, env=environment, input=stdin)
    except OSError as error:
        raise GateError(f"git cannot be started: {error.strerror}; allowed: git on the PATH") from error
    if done.returncode:
        reason = os.fsdecode(done.stderr).partition("\n")[0]
        raise kind(one_line(f"{what}; git: {reason}") if reason else what)
    return os.fsdecode(done.stdout).rstrip("\n")  # file names and subjects may have any encoding


def _check_out(where: Sequence[str], commit: str, folder: Path) -> None:
    """Write the commit as a checkout has it. No hook of git runs."""
    _make_repository(where, commit, folder)
    tree, what = ("-C", str(folder), "--work-tree", str(folder)), f"{str(folder)!r}: {commit[:10]} cannot be written"
    words = ("read-tree", "--reset", "-u", "--no-recurse-submodules", commit)
    _run_git((*where, *tree), *words, what=what, index=folder / ".git/index")
    entries = _run_git(where, "ls-tree", "-r", "-z", commit, what=what)
    for path, pinned in _submodules(entries).items():
        module, target = _module(where, commit, path), folder / path
        if module is not None and target.resolve() == folder.resolve() / path:
            # the module's own core.worktree is a folder that may be gone
            _check_out(_where(str(target), str(module)), pinned, target)


def _submodules(entries: str) -> dict[str, str]:
    """The commits of submodules by their paths, from what ls-tree or ls-files prints with -z. Pure."""
    links = [entry.partition("\t") for entry in entries.split("\0") if entry.startswith(_SUBMODULE)]
    return {path: next(word for word in words.split() if _HASH.fullmatch(word)) for words, _, path in links}


def _module(where: Sequence[str], commit: str, path: str) -> Path | None:
    """The git directory of a commit's submodule in this repository; None if it was never initialised here."""
    named = ("config", "-z", "--blob", f"{commit}:.gitmodules", "--get-regexp", r"^submodule\..*\.path$")
    with suppress(GateError):  # the commit has no .gitmodules, or no such path in it
        for entry in _run_git(where, *named, what="").split("\0"):
            key, _, value = entry.partition("\n")
            name = key.removeprefix("submodule.").removesuffix(".path")
            if value == path and ".." not in Path(name).parts and not Path(name).is_absolute():
                modules = (_git_path(where, f"modules/{name}"), Path(where[1], path, ".git"))
                return next(filter(Path.is_dir, modules), None)
    return None


def _make_repository(where: Sequence[str], commit: str, folder: Path) -> None:
    """Make `folder` with a `.git` that has the commit as HEAD, all branches and tags, and borrows all objects.

    So tools that read a version or the list of files see what a checkout has.
    """
    what = f"{commit[:10]}: no repository can be made in {str(folder)!r}"
    kind = "sha256" if len(commit) == _SHA256_DIGITS else "sha1"
    folder.mkdir(parents=True, exist_ok=True)
    _run_git(("-C", str(folder)), "init", "--quiet", "--template=", f"--object-format={kind}", what=what)
    refs = _run_git(where, "for-each-ref", "--format=%(objectname) %(refname)", "refs/heads", "refs/tags", what=what)
    (folder / ".git/packed-refs").write_bytes(os.fsencode(f"{refs}\n"))
    (folder / ".git/HEAD").write_text(f"{commit}\n")
    (folder / ".git/objects/info").mkdir(exist_ok=True)
    (folder / ".git/objects/info/alternates").write_text(f"{_git_path(where, 'objects')}\n")
    if (shallow := _git_path(where, "shallow")).exists():
        shutil.copyfile(shallow, folder / ".git/shallow")


def _git_path(where: Sequence[str], name: str) -> Path:
    """The path that git prints is relative to the folder of ``-C``."""
    printed = _run_git(where, "rev-parse", "--git-path", name, what=f"{name}: not found")
    return Path(where[1], printed).resolve()


@contextmanager
def gate_folder() -> Iterator[Path]:
    """Make a temporary folder for this gate's commits, and remove it at the end. Raise GateError.

    A gate locks its folder while it lives, also for gates in other containers that share the temporary directory.
    Unlocked folders, of killed gates, are removed first.
    """
    try:
        place = Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise GateError(f"TMPDIR: {error.strerror}; allowed: a folder that can be written") from error
    for left in place.glob(f"{_PREFIX}*"):
        with suppress(OSError, RecursionError), _locked(left):
            shutil.rmtree(left, ignore_errors=True)
    with _reporting_disk_errors(place):
        new = Path(tempfile.mkdtemp(prefix=_NEW_PREFIX))  # no other gate removes this name before it is locked
    with _locked(new):
        folder = new.rename(place / f"{_PREFIX}{new.name.removeprefix(_NEW_PREFIX)}")
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Raise OSError if another process holds the lock."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(fd)


@contextmanager
def _reporting_disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise GateError(f"{str(folder)!r} cannot be written: {error.strerror or error}") from error


def _is_gates_own(file: Path) -> bool:
    """Whether the file is a comment or a JUnit file."""
    try:
        if not file.is_file():  # opening a pipe would wait
            return False
        with file.open("rb") as opened:
            begin = opened.read(_LONGEST_BEGIN)
    except OSError:
        return False
    return begin.startswith(_COMMENT) or (begin.startswith(b"<?xml") and _JUNIT in begin)
