"""The Python code that head changed: by file the lines of each side, and the functions of head. Pure but for reading.

    base                  head                   lines of base       lines of head
    def f(x):             def f(x):
        return g(x)           y = x.clone()      2                   2, 3
                              return g(y)

A line that was added or removed has no counterpart, so its neighbours stand for it: they name the same function.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from pathlib import Path

from dpbench.cases.names import IMPORT_FOLDERS
from dpbench.gate.judgement import Cause
from dpbench.measure.counted.details import function_at

_MOST_BYTES = 1 << 20
"""A larger file is no code of a person, and comparing it takes minutes."""
Lines = Mapping[str, tuple[int, ...]]
"""By path in a commit."""


@dataclass(frozen=True)
class ChangedCode:
    """`places` are the beginnings of head's hunks. They did not run, as far as is known."""

    base: Lines = field(default_factory=dict)
    head: Lines = field(default_factory=dict)
    places: tuple[Cause, ...] = ()

    def of(self, files: Set[str]) -> "ChangedCode":
        """With the places in these files, unless there are none."""
        return replace(self, places=tuple(place for place in self.places if place.file in files) or self.places)

    def has(self, file: str, lines: Iterable[int]) -> bool:
        """Whether one of these lines of head was changed."""
        changed = (self.head.get(path, ()) for path in _paths(file))
        return any(line in numbers for numbers in changed for line in lines)


def changed_code(base: Path, head: Path) -> ChangedCode:
    """Links and files above 1 MiB are left out."""
    olds, news, places = dict[str, tuple[int, ...]](), dict[str, tuple[int, ...]](), list[Cause]()
    for path in sorted(_python_files(base) | _python_files(head)):
        old, new = _text(base / path), _text(head / path)
        if old == new:
            continue
        old_lines, new_lines = old.splitlines(), new.splitlines()
        hunks = [hunk for hunk in SequenceMatcher(None, old_lines, new_lines).get_opcodes() if hunk[0] != "equal"]
        olds[path] = _numbers((first, end) for _, first, end, _, _ in hunks)
        news[path] = _numbers((first, end) for *_, first, end in hunks)
        places += filter(None, (_place(head / path, path, new_lines, first, end) for *_, first, end in hunks))
    return ChangedCode(olds, news, tuple(places))


def is_library(file: str, *commits: Path) -> bool:
    return not any((commit / path).is_file() for commit in commits for path in _paths(file))


def _paths(file: str) -> list[str]:
    """Where a file is in a commit, whose packages may stand in ``src``."""
    return [str(Path(root, file)) for root in IMPORT_FOLDERS]


def _python_files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*.py")}


def _text(path: Path) -> str:
    is_read = path.is_file() and not path.is_symlink() and path.stat().st_size <= _MOST_BYTES
    return path.read_text(errors="replace") if is_read else ""


def _numbers(hunks: Iterator[tuple[int, int]]) -> tuple[int, ...]:
    """Line numbers, from 1, of hunks that begin at `first` and end before `end`, from 0."""
    return tuple(sorted({n for first, end in hunks for n in (range(first + 1, end + 1) or (first, first + 1))}))


def _place(file: Path, path: str, lines: Sequence[str], first: int, end: int) -> Cause | None:
    """None without code, such as of comments. What was removed has the line before it."""
    no_code = _docstrings(file)
    code = [n for n in range(first, end) if n + 1 not in no_code and lines[n].strip() and lines[n].strip()[0] != "#"]
    at = code[0] if code else first - 1
    if not 0 <= at < len(lines) or (end > first and not code):
        return None
    function, text = function_at(str(file), at + 1)[2], lines[at].strip()
    return Cause(what="changed", function=function, file=path, lines=(at + 1,), text=text, is_changed=True)


def _docstrings(file: Path) -> set[int]:
    try:
        tree = ast.parse(_text(file))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    texts = (node for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    return {line for node in texts for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
