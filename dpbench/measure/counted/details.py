"""Lines of code that a step's counters come from."""

import ast
import linecache
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import FrameType

from dpbench.measure.python_calls import PythonCalls, PythonLines
from dpbench.measure.simulated_counts import events_by_phase, link_of
from dpbench.records.count_record import LONGEST_TEXT, MOST_DETAILS, Detail, Phase, Place
from dpbench.records.recording import Copy, HostCall, Operator, RecordedEvent, Recording

_WRAPPER = "dpbench.parallel"


def place_of(file: str, line: int, function: str | None = None) -> Place:
    """The place of a line; a `function` of None is looked up in the file."""
    return Place(
        file=_relative(file)[-LONGEST_TEXT:],
        line=line,
        function=(_function_at(file, line) if function is None else function)[:LONGEST_TEXT],
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


def _function_at(file: str, line: int) -> str:
    around = [function for function in _functions(file) if function[0] <= line <= function[1]]
    return max(around)[2] if around else "<module>"


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


_Call = tuple[str, str, int, str, str, int]
_Line = tuple[str, str, int]


class PythonCallSites(PythonCalls):
    def __init__(self) -> None:
        super().__init__()
        self._calls: dict[Phase, list[_Call]] = {}
        self._now: list[_Call] = []

    def enter(self, phase: Phase) -> None:
        super().enter(phase)
        self._now = self._calls.setdefault(phase, [])

    def _count(self, frame: FrameType) -> None:
        super()._count(frame)
        code, caller = frame.f_code, frame.f_back
        by = ("", "", 0) if caller is None else (caller.f_code.co_qualname, caller.f_code.co_filename, caller.f_lineno)
        self._now.append((code.co_qualname, code.co_filename, code.co_firstlineno, *by))  # one C call, as in `_count`

    def details(self) -> Iterator[Detail]:
        for phase, calls in self._calls.items():
            for (name, file, line, by, by_file, by_line), value in Counter(calls).items():
                yield Detail(
                    counter=f"{phase}.python_calls",
                    what=name[:LONGEST_TEXT],
                    defined=place_of(file, line, name),
                    place=place_of(by_file, by_line, by),
                    value=value,
                )


class PythonLineSites(PythonLines):
    def __init__(self) -> None:
        super().__init__()
        self._lines: dict[Phase, list[_Line]] = {}
        self._now: list[_Line] = []

    def enter(self, phase: Phase) -> None:
        super().enter(phase)
        self._now = self._lines.setdefault(phase, [])

    def _count(self, frame: FrameType) -> None:
        super()._count(frame)
        self._now.append((frame.f_code.co_qualname, frame.f_code.co_filename, frame.f_lineno))

    def details(self) -> Iterator[Detail]:
        for phase, lines in self._lines.items():
            for (name, file, line), value in Counter(lines).items():
                place = place_of(file, line, name)
                yield Detail(counter=f"{phase}.python_lines", what="lines", place=place, value=value)


def details_of(recording: Recording) -> Iterator[Detail]:
    values: Counter[tuple[str, str, str]] = Counter()
    for phase, events in events_by_phase(recording).items():
        for event in events:
            for counter, what, line, value in _parts(event):
                values[f"{phase}.{counter}", what, line] += value
    for (counter, what, line), value in values.items():
        yield Detail(counter=counter, what=what[:LONGEST_TEXT], place=_place(line), value=value)


def limited(details: Iterator[Detail]) -> tuple[Detail, ...]:
    """None if there are more than `MOST_DETAILS`: a part of them would compare wrongly."""
    listed = tuple(detail for detail, _ in zip(details, range(MOST_DETAILS + 1), strict=False))
    return listed if len(listed) <= MOST_DETAILS else ()


def _parts(event: RecordedEvent) -> Iterator[tuple[str, str, str, int]]:
    if isinstance(event, Operator):
        what = event.name if event.node is None else f"{event.name} of {event.node}"
        values: Mapping[str, int] = {"operators": 1, "kernels": int(event.is_launched), "flops": event.flops}
        yield from ((counter, what, event.line, value) for counter, value in values.items() if value)
    elif isinstance(event, Copy):
        link = link_of(event)
        yield "operators", f"copy {link}", event.line, 1
        yield f"copies.{link}.count", f"{event.size_bytes:,} bytes", event.line, 1
        yield f"copies.{link}.size_bytes", f"{event.size_bytes:,} bytes", event.line, event.size_bytes
    elif isinstance(event, HostCall):
        yield f"host_calls.{event.name}", str(event.name), event.line, 1


def _place(line: str) -> Place:
    file, _, number = line.rpartition(":")
    return place_of(file, int(number))
