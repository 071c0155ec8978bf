"""Commits as folders, without touching the user's tree, its index or its list of worktrees.

`git archive` writes a commit's files where nothing of git's remembers them: a gate that is killed leaves no worktree to
prune. Its folder, on which nobody has a lock then, is removed by the next gate.
"""

import fcntl
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dpbench.errors import GateError
from dpbench.gate.judgement import Revision

_PREFIX, _NEW_PREFIX = "dpbench-gate-", "dpbench-new-gate-"
_ALLOWED = "what `git rev-parse` knows as a commit, such as main, HEAD~1, v1.2 or a hash"


class Repository:
    """The git repository around `folder`. Raises GateError where there is none."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.root = Path(self._git("rev-parse", "--show-toplevel", what=f"{str(folder)!r} is in no git repository"))

    def resolve(self, option: str, revision: str) -> Revision:
        """`option` is the command line's, for the complaint."""
        asked = f"{option}: {revision!r} is no revision here; allowed: {_ALLOWED}"
        if revision.startswith("-"):
            raise GateError(asked)
        commit = self._git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}", what=asked)
        subject = self._git("log", "-1", "--format=%s", commit, what=asked)
        return Revision(asked=revision, commit=commit, subject=subject)

    def changed_files(self, besides: Path) -> list[str]:
        """Tracked files that differ from HEAD, and untracked ones that are not ignored, but none in `besides`."""
        listed = self._git("status", "--porcelain", "-z", "--untracked-files=all", what="git status failed")
        names = [entry[3:] for entry in listed.split("\0") if entry[2:3] == " "]
        return [name for name in names if not (self.root / name).is_relative_to(besides.resolve())]

    def commits_between(self, base: str, head: str) -> frozenset[str]:
        """Those that head has and base has not."""
        return frozenset(self._git("rev-list", f"{base}..{head}", what="git rev-list failed").split())

    def dates(self) -> dict[str, float]:
        """When each commit that HEAD or any branch has was made, in seconds since 1970."""
        listed = self._git("log", "--all", "HEAD", "--format=%H %ct", what="git log failed")
        return {line.split()[0]: float(line.split()[1]) for line in listed.splitlines()}

    def write_commit(self, commit: str, folder: Path) -> None:
        """The commit's files into `folder`, new."""
        done = subprocess.run(
            ["git", "-C", str(self.root), "archive", "--format=tar", commit], capture_output=True, check=False
        )
        if done.returncode:
            raise GateError(f"{commit[:10]}: git archive failed: {_last_line(done.stderr.decode(errors='replace'))}")
        with _disk(folder), tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
            tar.extractall(folder, filter="tar")  # links may lead anywhere, as in a checkout

    def write_tree(self, folder: Path) -> None:
        """The working tree as it is now, without what git ignores, into `folder`, new."""
        listed = self._git("ls-files", "-z", "--cached", "--others", "--exclude-standard", what="git ls-files failed")
        with _disk(folder):
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
        return os.fsdecode(done.stdout).rstrip("\n")  # names and subjects may be in any encoding


@contextmanager
def gate_folder() -> Iterator[Path]:
    """A folder for this gate's commits, gone at the end; what killed gates left goes now.

    A gate holds a lock on its folder for as long as it lives, also seen from another container that shares the place.
    """
    try:
        place = Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise GateError(f"TMPDIR: {error.strerror}; allowed: a folder that can be written") from error
    for left in place.glob(f"{_PREFIX}*"):
        with suppress(OSError), _locked(left):
            shutil.rmtree(left, ignore_errors=True)
    with _disk(place):
        new = Path(tempfile.mkdtemp(prefix=_NEW_PREFIX))  # by a name that no other gate takes for left over
    with _locked(new):
        folder = new.rename(place / f"{_PREFIX}{new.name.removeprefix(_NEW_PREFIX)}")
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Raises OSError where another process holds it."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(fd)


@contextmanager
def _disk(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise GateError(f"{str(folder)!r} cannot be written: {error.strerror or error}") from error


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it does not say why"])[-1]
