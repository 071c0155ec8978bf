"""One call of the command line with hostile input, in this process, and what must hold after any call.

Nothing is measured: `children.py` answers for the child processes. Commands run in a new folder, which is their home.
"""

import io
import os
import re
import signal
import sys
import tempfile
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from dpbench import cli
from tests.hostile.children import answering

_REPORTS = ("--comment=", "--junit=")
_MEMORY = "/dev/shm"  # files in memory: hundreds of folders are made, and records are synced
CODES = {0, 1, 2, 3, 4, 130}
Files = Mapping[str, bytes | Callable[[Path], None]]
"""Contents by relative path, or what makes the file."""


@dataclass(frozen=True)
class Answer:
    """What a command did. `written` are the paths that it created, changed or removed."""

    words: tuple[str, ...]
    code: object
    out: str
    err: str
    written: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """One attack. `pattern` is a regular expression of its one line."""

    area: str
    name: str
    words: tuple[str, ...]
    pattern: str
    files: Files = field(default_factory=dict)

    @property
    def code(self) -> int:
        return 2

    def __str__(self) -> str:
        return f"{self.area}: {self.name}"


@contextmanager
def new_folder(files: Files = {}) -> Iterator[Path]:  # noqa: B006  # never changed
    """Make a folder with these files, go there, and make it the home."""
    back = Path.cwd()
    with tempfile.TemporaryDirectory(dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None) as name:
        folder = Path(name)
        for path, content in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content) if isinstance(content, bytes) else content(folder / path)
        os.chdir(folder)
        try:
            yield folder
        finally:
            os.chdir(back)


def attack(words: tuple[str, ...], files: Files = {}) -> Answer:  # noqa: B006
    """Call `dpbench` with these words in a new folder with these files."""
    with new_folder(files) as folder:
        return call(words, folder)


def call(words: tuple[str, ...], folder: Path) -> Answer:
    """Call `dpbench` in the current folder. `folder` is the one that is compared before and after."""
    before = _contents(folder)
    # As in a real process: stdout raises for text that is no UTF-8, stderr escapes it.
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", newline="", write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), "utf-8", errors="backslashreplace", newline="", write_through=True)
    home = {"HOME": str(folder), "GIT_CEILING_DIRECTORIES": str(folder.parent), "DPBENCH_DEBUG": "1"}
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    code: object = None
    with (
        patch.dict(os.environ, home),
        patch.object(sys, "argv", ["dpbench", *words]),
        redirect_stdout(out),
        redirect_stderr(err),
        answering(),
    ):
        try:
            cli.main()
        except SystemExit as ended:
            code = ended.code
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
    texts = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]  # a BytesIO
    after = _contents(folder)
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    return Answer(words, code, *texts, tuple(changed))


def assert_unharmed(answer: Answer) -> None:
    """Check what holds for every input: the invariant of the attack."""
    shown = f"{answer!r}"[:3000]
    assert "Traceback" not in answer.out + answer.err, shown
    assert answer.code in CODES, shown
    assert not control_characters(answer.out + answer.err), shown
    lines = answer.err.splitlines(keepends=True)
    is_gate = answer.words[0] == "gate"
    if answer.code == 2 or (answer.code == 3 and is_gate):
        complaints = [line for line in lines if line.startswith("dpbench: ") or not is_gate]
        assert one_line("".join(complaints)), shown  # others are stages of the gate
    if answer.code == 2:
        assert answer.out == "", shown
        assert answer.written == (), shown
    if answer.code == 3 and is_gate:
        # A gate that is broken says so in the reports that it was asked for, and writes nothing else.
        reports = tuple(word.partition("=")[2] for word in answer.words if word.startswith(_REPORTS))
        assert all(path.endswith(reports) for path in answer.written), shown


def one_line(errors: str) -> bool:
    """Return whether stderr holds one error, after any warnings."""
    lines = [line for line in errors.split("\n")[:-1] if not line.startswith("dpbench: warning: ")]
    return len(lines) == 1 and lines[0].startswith("dpbench: ") and errors.endswith("\n")


def control_characters(text: str) -> set[str]:
    """Return the control characters of `text`, such as ESC, BEL, CR and the C1 set, but not the newline."""
    return {character for character in text if unicodedata.category(character) == "Cc" and character != "\n"}


def matches(pattern: str, answer: Answer) -> bool:
    """Return whether the error, or else the output, holds the pattern."""
    return re.search(pattern, answer.err or answer.out) is not None


def _contents(folder: Path) -> dict[str, object]:
    """Return what each path below `folder` holds."""
    contents: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        if ".git" in path.relative_to(folder).parts:
            continue
        if path.is_symlink():
            contents[str(path)] = path.readlink()
        elif path.is_file():
            contents[str(path)] = path.read_bytes()
        else:
            contents[str(path)] = path.stat().st_mode
    return contents
