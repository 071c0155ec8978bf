"""Lines of code that a step's counters come from.

An event belongs to the innermost function on the stack that the commit changed, if there is one, and else to the line
that made it::

    DataParallel.forward    changed        self.state_dict()          the place: 412 calls of Module.state_dict
    Module.state_dict       torch's            self._save(...)
    Module._save            torch's                ...                410 of them
"""

import ast
import linecache
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

from dpbench.measure.simulated_counts import events_by_phase, link_of
from dpbench.records.count_record import LONGEST_TEXT, MOST_DETAILS, Detail, Place
from dpbench.records.recording import Copy, HostCall, Operator, Recording

_WRAPPER = "dpbench.parallel"


def place_of(file: str, line: int, function: str | None = None) -> Place:
    """The place of a line; a `function` of None is looked up in the file."""
    return Place(
        file=_relative(file)[-LONGEST_TEXT:],
        line=line,
        function=(function_at(file, line)[2] if function is None else function)[:LONGEST_TEXT],
        text=linecache.getline(file, line).strip()[:LONGEST_TEXT],
    )


@cache
def _relative(file: str) -> str:
    wrapper = sys.modules.get(_WRAPPER)
    commit = [str(Path(wrapper.__file__).parents[2])] if wrapper is not None and wrapper.__file__ else []
    for folder in (*commit, os.getcwd(), *sorted(sys.path, key=len, reverse=True)):
        if folder and file.startswith(f"{folder.rstrip(os.sep)}{os.sep}"):
            return file[len(folder.rstrip(os.sep)) + 1 :]
    return file


@cache
def function_at(file: str, line: int) -> tuple[int, int, str]:
    """First and last line, and the qualified name."""
    around = [function for function in _functions(file) if function[0] <= line <= function[1]]
    return max(around) if around else (line, line, "<module>")


@cache
def _functions(file: str) -> tuple[tuple[int, int, str], ...]:
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


class _Site(NamedTuple):
    """`function` is None where the file must tell."""

    counter: str
    what: str
    defined: CodeType | None
    file: str
    line: int
    function: str | None = None


class Sites:
    """The places of counted events. `changed` has the changed lines by file.

    Each counter object calls one of its methods at each event.
    """

    def __init__(self, changed: Mapping[str, Sequence[int]]) -> None:
        self._changed, self._name = changed, ""
        self._is_changed = cache(self._touches)
        self._sites: list[tuple[_Site, int]] = []

    def named(self, name: str) -> "Sites":
        """The same sites, for a counter whose name begins with `name` in place of the phase."""
        named = copy(self)
        named._name = name
        return named

    def calls(self, phase: str, frame: FrameType) -> None:
        below, at = frame, frame.f_back
        while at is not None and not self._is_in_changed(at):
            below, at = at, at.f_back
        if at is None:
            below, at = frame, frame.f_back
        if at is not None:
            self._add(f"{self._name or phase}.python_calls", below.f_code.co_qualname, below.f_code, at)

    def lines(self, phase: str, frame: FrameType) -> None:
        self._add(f"{self._name or phase}.python_lines", "lines", None, self.innermost(frame))

    def host_operators(self, phase: str, frame: FrameType) -> None:
        self._add(f"{self._name or phase}.host_operators", "operators", None, self.innermost(frame))

    def _add(self, counter: str, what: str, defined: CodeType | None, at: FrameType) -> None:
        code = at.f_code  # one C call to append, so that no thread's event is lost
        self._sites.append((_Site(counter, what, defined, code.co_filename, at.f_lineno, code.co_qualname), 1))

    def innermost(self, frame: FrameType) -> FrameType:
        """The innermost frame of a changed function, or this one."""
        at: FrameType | None = frame
        while at is not None and not self._is_in_changed(at):
            at = at.f_back
        return at or frame

    def _is_in_changed(self, frame: FrameType) -> bool:
        return frame.f_code.co_filename in self._changed and self._is_changed(frame.f_code.co_filename, frame.f_lineno)

    def _touches(self, file: str, line: int) -> bool:
        first, last, _ = function_at(file, line)
        return any(first <= number <= last for number in self._changed.get(file, ()))

    def add_recording(self, recording: Recording) -> None:
        for phase, events in events_by_phase(recording).items():
            for event in events:
                if isinstance(event, Operator | Copy | HostCall):
                    file, _, line = event.line.rpartition(":")
                    parts = (
                        (_Site(f"{phase}.{counter}", what, None, file, int(line)), value)
                        for counter, what, value in _parts(event)
                    )
                    self._sites += parts

    def details(self) -> tuple[Detail, ...]:
        """None if there are more than `MOST_DETAILS`: a part of them would compare wrongly."""
        values: Counter[_Site] = Counter()
        for site, value in self._sites:
            values[site] += value
        return tuple(map(self._detail, values.items())) if len(values) <= MOST_DETAILS else ()

    def _detail(self, counted: tuple[_Site, int]) -> Detail:
        site, value = counted
        code = site.defined
        return Detail(
            counter=site.counter,
            what=site.what[:LONGEST_TEXT],
            defined=None if code is None else place_of(code.co_filename, code.co_firstlineno, site.what),
            place=place_of(site.file, site.line, site.function),
            value=value,
            is_changed=self._is_changed(site.file, site.line),
        )


def _parts(event: Operator | Copy | HostCall) -> Iterator[tuple[str, str, int]]:
    if isinstance(event, Operator):
        what = event.name if event.node is None else f"{event.name} of {event.node}"
        values: Mapping[str, int] = {"operators": 1, "kernels": int(event.is_launched), "flops": event.flops}
        yield from ((counter, what, value) for counter, value in values.items() if value)
    elif isinstance(event, Copy):
        link = link_of(event)
        yield "operators", f"copy {link}", 1
        yield f"copies.{link}.count", f"{event.size_bytes:,} bytes", 1
        yield f"copies.{link}.size_bytes", f"{event.size_bytes:,} bytes", event.size_bytes
    else:
        yield f"host_calls.{event.name}", str(event.name), 1
