"""Write commits into folders, without touching the user's working tree, index or worktrees.

`git archive` writes the files of a commit and records nothing in the repository. So a gate that is killed leaves no
worktree to prune. It leaves its temporary folder, unlocked, and the next gate removes that.
"""

import fcntl
import io
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dpbench.errors import GateError
from dpbench.gate.judgement import Revision
from dpbench.text.outside import one_line

_PREFIX, _NEW_PREFIX = "dpbench-gate-", "dpbench-new-gate-"
_COMMENT, _JUNIT, _LONGEST_BEGIN = b"<!-- dpbench gate -->", b'<testsuites name="dpbench gate"', 100
"""How the files of `--markdown` and `--junit` begin."""
_HASH = re.compile("[0-9a-f]{40,64}")
_ALLOWED = "what `git rev-parse` knows as a commit, such as main, HEAD~1, v1.2 or a hash"


class Repository:
    """The git repository that contains `folder`. Raises GateError if there is none."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.root = Path(self._git("rev-parse", "--show-toplevel", what=f"{str(folder)!r} is in no git repository"))

    def resolve(self, option: str, revision: str) -> Revision:
        """Find the commit that `revision` names.

        Raises GateError, which names the command-line `option`.
        """
        asked = f"{option}: {revision!r} is no revision here; allowed: {_ALLOWED}"
        if revision.startswith("-") or "\0" in revision:
            raise GateError(asked)
        commit = self._git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}", what=asked)
        if not _HASH.fullmatch(commit):  # such as ^main, which names all commits but those of main
            raise GateError(asked)
        subject = self._git("log", "-1", "--format=%s", commit, what=asked)
        return Revision(asked=revision, commit=commit, subject=subject)

    def merge_base(self, base: Revision, head: str) -> Revision:
        """Return the last common commit of `base` and `head`, or `base` itself if head has all of its commits.

        Raises GateError if they have none.
        """
        why = f"--base: {base.asked!r} has no common commit with {head[:10]}"
        commit = self._git("merge-base", str(base.commit), head, what=f"{why}; allowed: --base-exact, or a full clone")
        if commit == base.commit:
            return base
        subject = self._git("log", "-1", "--format=%s", commit, what=why)
        return Revision(asked=base.asked, commit=commit, subject=subject, tip=base.commit)

    def changed_files(self, besides: Path) -> list[str]:
        """Return files that differ from HEAD or are untracked.

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
        """Return the files that git tracks, by their paths from the root."""
        return self._git("ls-files", "-z", "--cached", what="git ls-files failed").split("\0")

    def commits_between(self, base: str, head: str) -> frozenset[str]:
        """Return the full hashes of the commits that head has and base has not."""
        return frozenset(self._git("rev-list", f"{base}..{head}", what="git rev-list failed").split())

    def dates(self) -> dict[str, float]:
        """Return the date of each commit of HEAD and all branches, in seconds since 1970."""
        listed = self._git("log", "--all", "HEAD", "--format=%H %ct", what="git log failed")
        return {line.split()[0]: float(line.split()[1]) for line in listed.splitlines()}

    def write_commit(self, commit: str, folder: Path) -> None:
        """Write the files of a commit into `folder`, which is made."""
        done = subprocess.run(
            ["git", "-C", str(self.root), "archive", "--format=tar", commit], capture_output=True, check=False
        )
        if done.returncode:
            raise GateError(f"{commit[:10]}: git archive failed: {_last_line(done.stderr.decode(errors='replace'))}")
        try:
            tar = tarfile.open(fileobj=io.BytesIO(done.stdout))  # noqa: SIM115  # `with` below closes it
        except tarfile.ReadError:  # a commit without files
            raise GateError(f"{commit[:10]}: holds no files; allowed: a commit with a wrapper") from None
        with _reporting_disk_errors(folder), tar:
            try:
                tar.extractall(folder, filter="tar")  # keeps links that lead out of the folder, as a checkout does
            except tarfile.TarError as error:  # such as a folder with the name of a link
                text = f"{commit[:10]}: {error}; allowed: a commit whose files a folder can hold"
                raise GateError(one_line(text)) from error

    def write_working_tree(self, folder: Path) -> None:
        """Write the present files that git does not ignore into `folder`, which is made."""
        listed = self._git("ls-files", "-z", "--cached", "--others", "--exclude-standard", what="git ls-files failed")
        with _reporting_disk_errors(folder):
            for name in filter(None, listed.split("\0")):
                source, target = self.root / name, folder / name
                if source.is_file() or source.is_symlink():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(source, target, follow_symlinks=False)

    def _git(self, *words: str, what: str) -> str:
        try:
            done = subprocess.run(["git", "-C", str(self.root), *words], capture_output=True, check=False)
        except OSError as error:
            raise GateError(f"git cannot be started: {error.strerror}; allowed: git on the PATH") from error
        if done.returncode:
            reason = os.fsdecode(done.stderr).partition("\n")[0]
            raise GateError(f"{what}; git: {reason}" if reason else what)
        return os.fsdecode(done.stdout).rstrip("\n")  # file names and subjects may have any encoding


@contextmanager
def gate_folder() -> Iterator[Path]:
    """Make a temporary folder for this gate's commits, and remove it at the end.

    Folders that killed gates left are removed first. A gate locks its folder while it lives. Gates in other containers
    that share the temporary directory see the lock too. Raises GateError.
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
    """Hold the lock of a folder. Raises OSError if another process holds it."""
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
    """Whether the file is a comment or a JUnit file that a gate wrote."""
    try:
        if not file.is_file():  # opening a pipe would wait
            return False
        with file.open("rb") as opened:
            begin = opened.read(_LONGEST_BEGIN)
    except OSError:
        return False
    return begin.startswith(_COMMENT) or (begin.startswith(b"<?xml") and _JUNIT in begin)


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["without a reason"])[-1]
