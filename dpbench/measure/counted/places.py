"""Lines of code as they are called in any commit: with their function and text, and the path inside the commit."""

import ast
import linecache
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from dpbench.results.details import LONGEST_TEXT, Place

_WRAPPER = "dpbench.parallel"


def place_of(file: str, line: int, function: str | None = None) -> Place:
    """Return the place of a line. If `function` is not given, it is looked up in the file."""
    return Place(
        file=_relative(file)[-LONGEST_TEXT:],
        line=line,
        function=(_function_at(file, line) if function is None else function)[:LONGEST_TEXT],
        text=linecache.getline(file, line).strip()[:LONGEST_TEXT],
    )


@cache
def _relative(file: str) -> str:
    """Return the path below the first folder that holds it: the commit's, the current one, then those of imports."""
    wrapper = sys.modules.get(_WRAPPER)
    commit = [str(Path(wrapper.__file__).parents[2])] if wrapper is not None and wrapper.__file__ else []
    for folder in (*commit, os.getcwd(), *sorted(sys.path, key=len, reverse=True)):
        if folder and file.startswith(f"{folder.rstrip(os.sep)}{os.sep}"):
            return file[len(folder.rstrip(os.sep)) + 1 :]
    return file


def _function_at(file: str, line: int) -> str:
    """Return the qualified name of the innermost function that contains the line, or ``<module>``."""
    around = [found for found in _functions(file) if found[0] <= line <= found[1]]
    return max(around)[2] if around else "<module>"


@cache
def _functions(file: str) -> tuple[tuple[int, int, str], ...]:
    """Return first line, last line and name of each function in a file; nothing if it cannot be parsed."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return ()
    return tuple(_named(tree, ""))


def _named(node: ast.AST, prefix: str) -> Iterator[tuple[int, int, str]]:
    for child in ast.iter_child_nodes(node):
        inner = prefix
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child.lineno, child.end_lineno or child.lineno, f"{prefix}{child.name}"
            inner = f"{prefix}{child.name}.<locals>."
        elif isinstance(child, ast.ClassDef):
            inner = f"{prefix}{child.name}."
        yield from _named(child, inner)
