"""`dpbench gate`: is a commit slower than another? Its exit codes are its verdicts."""

import errno
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from typer.core import TyperCommand

from dpbench.cli.shared import Json, example, option, output_path, show, show_lines, usage_line
from dpbench.errors import GateError
from dpbench.gate.bisect.run_bisect import run_bisect
from dpbench.gate.judgement import Judgement, Verdict
from dpbench.gate.prepare import GateRequest
from dpbench.gate.run_gate import broken_judgement, run_gate
from dpbench.gate.self_test.record import GATES, ROUNDS
from dpbench.gate.self_test.run_self_test import run_self_test
from dpbench.report.gate.annotations import annotations
from dpbench.report.gate.badge import gate_badge
from dpbench.report.gate.bencher import gate_bencher
from dpbench.report.gate.bisect_text import bisect_json, exit_code, outcome_lines, step_line
from dpbench.report.gate.csv_form import gate_csv
from dpbench.report.gate.json_form import EXIT_CODES, gate_json
from dpbench.report.gate.junit import gate_junit
from dpbench.report.gate.markdown import gate_markdown
from dpbench.report.gate.self_test_tables import alarms_as_designed, self_test_json, self_test_text
from dpbench.report.gate.terminal import gate_text
from dpbench.results.files import replace_text
from dpbench.sweep.quantities import parse_duration

TIERS = ("0", "1", "2")
_MOST_TRIALS = 10_000
_FORMS: Mapping[str, Callable[[Judgement], str]] = {
    "markdown": gate_markdown,
    "junit": gate_junit,
    "bencher": gate_bencher,
    "csv": gate_csv,
    "badge": gate_badge,
}
"""By the option that names the file."""
_NAME_MAX = 255
"""Bytes of a file name that Linux's file systems allow (limits.h)."""


class _GateCommand(TyperCommand):
    """The gate's command. Its wrong usage is a `GateError`; `cli.main` gives its other errors exit code 3 too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except typer.TyperException as error:
            raise GateError(usage_line(error.format_message(), "dpbench gate")) from error


def gate(
    base: Annotated[str | None, option("Compare with the merge base of head and this commit, such as main.")] = None,
    base_exact: Annotated[
        bool, typer.Option("--base-exact", help="Compare with the commit of --base itself, not with the merge base.")
    ] = False,
    head: Annotated[str, option("The commit to judge.")] = "HEAD",
    worktree: Annotated[bool, typer.Option("--worktree", help="Judge the working tree instead of a commit.")] = False,
    tiers: Annotated[str, option("0 exact counters, 1 step times side by side, 2 drifts in the history.")] = "0,1",
    budget: Annotated[str, option("Time for all, such as 90s or 5m; clear cases end early.")] = "5m",
    settings: Annotated[Path | None, option("TOML file of benchmarks; benchmarks/gate.toml if it exists.")] = None,
    results: Annotated[Path, option("Folder of the history.")] = Path("results"),
    markdown: Annotated[Path | None, option("Write a pull-request comment.", is_output=True)] = None,
    junit: Annotated[Path | None, option("Write JUnit XML.", is_output=True)] = None,
    bencher: Annotated[Path | None, option("Write Bencher Metric Format (JSON).", is_output=True)] = None,
    csv: Annotated[Path | None, option("Write CSV.", is_output=True)] = None,
    badge: Annotated[Path | None, option("Write a badge (SVG).", is_output=True)] = None,
    github: Annotated[bool, typer.Option("--github", help="Write annotations and the step's summary.")] = False,
    bisect: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="GOOD BAD", help="Find the first commit of GOOD..BAD that is worse: exit 0 found, 2 several left."
        ),
    ] = None,
    counter: Annotated[str | None, option("The counter of --bisect, such as forward.operators.")] = None,
    self_test: Annotated[
        bool, typer.Option("--self-test", help="Measure how often the gate errs on this machine.")
    ] = False,
    rounds: Annotated[int, option("Rounds of the self-test, for each condition.")] = ROUNDS,
    gates: Annotated[int, option("Whole gates of the self-test, for each condition.")] = GATES,
    as_json: Json = False,
) -> int:
    """Judge whether a commit is slower than another: exit 0 pass, 1 slower, 2 undecided, 3 broken."""
    signal.signal(signal.SIGTERM, _interrupted)  # so that a cancelled job of CI cleans up, as after Ctrl-C
    named = {"markdown": markdown, "junit": junit, "bencher": bencher, "csv": csv, "badge": badge}
    files = {name: path for name, path in named.items() if path is not None}
    writers = {path: _FORMS[name] for name, path in files.items()}
    others = {"base": base, "base-exact": base_exact, "worktree": worktree, "github": github, "self-test": self_test}
    if ends := _ends(bisect, counter, {**others, **files, "head": head != "HEAD"}):
        base, head = ends
    asked = GateRequest(
        base="HEAD" if self_test and base is None else _given(base),
        head=_head(head, worktree=worktree),
        base_exact=base_exact,
        tiers=_tiers(tiers),
        budget_s=_budget(budget),
        settings=settings,
        results=results,
    )
    summary = _checked_summary(files, github=github)
    with Console(stderr=True).status("preparing") as status:
        if bisect is not None:
            return _bisected(asked, counter, status.update, as_json=as_json)
        if self_test:
            return _examined(asked, rounds, gates, status.update, as_json=as_json)
        found = _judged(asked, status.update, lambda broken: _write(broken, writers, summary, github=github), as_json)
    _write(found, writers, summary, github=github)
    show(gate_json(found) if as_json else gate_text(found))
    return EXIT_CODES[found.verdict]


def _judged(
    asked: GateRequest, progress: Callable[[str], object], write: Callable[[Judgement], None], as_json: bool
) -> Judgement:
    """Return the judgement. If the gate raises GateError, write and show that it is broken."""
    try:
        return run_gate(asked, progress=progress)
    except GateError as error:
        broken = broken_judgement(asked, str(error))
        write(broken)
        if as_json:
            show(gate_json(broken))
        raise


def _bisected(asked: GateRequest, counter: str | None, progress: Callable[[str], object], *, as_json: bool) -> int:
    """Search the first bad commit, show each step and the outcome, and return the exit code."""
    if 2 in asked.tiers:
        raise GateError("--tiers: 2 has no place in --bisect; allowed: 0, 1 or 0,1")
    if counter is not None and 0 not in asked.tiers:
        raise GateError(f"--counter: {counter!r} needs tier 0; allowed: --tiers 0 or 0,1")
    found = run_bisect(
        asked, counter, say=lambda step: None if as_json else show_lines([step_line(step)]), progress=progress
    )
    if as_json:
        show(bisect_json(found))
    else:
        show_lines(outcome_lines(found))
    return exit_code(found)


def _checked_summary(files: Mapping[str, Path], *, github: bool) -> Path | None:
    """Return the file of GitHub's summary, if it is asked for. Raise GateError if a file cannot be written."""
    summary = _summary_file() if github else None
    for path in (*files.values(), *([summary] if summary else [])):
        _check_writable(path)
    _check_replaceable(files)
    return summary


def _ends(ends: tuple[str, str] | None, counter: str | None, others: Mapping[str, object]) -> tuple[str, str] | None:
    """Return the ends of a bisection, None if none is asked for. Raise GateError for options that do not go with it."""
    if ends is None:
        if counter is not None:
            raise GateError(f"--counter: {counter!r} has no --bisect; allowed: --counter with --bisect GOOD BAD")
        return None
    for name, value in others.items():
        if value:
            raise GateError(f"--{name}: has no place with --bisect; allowed: --bisect with --json, --tiers or --budget")
    return ends


def _examined(asked: GateRequest, rounds: int, gates: int, progress: Callable[[str], object], *, as_json: bool) -> int:
    """Run the self-test, show it, and return the exit code: 1 if equal code alarms more often than designed."""
    for name, count, least in (("rounds", rounds, 2), ("gates", gates, 0)):
        if not least <= count <= _MOST_TRIALS:
            raise GateError(f"--{name}: {count} is not allowed; allowed: {least} to {_MOST_TRIALS}")
    tested = run_self_test(asked, rounds, gates, progress=progress)
    show(self_test_json(tested) if as_json else self_test_text(tested))
    return EXIT_CODES[Verdict.PASS if alarms_as_designed(tested) else Verdict.SLOWER]


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command(cls=_GateCommand, epilog=example("dpbench gate --base main --budget 5m"))(gate)


def _given(base: str | None) -> str:
    if base is None:
        raise GateError("--base: is missing; allowed: a commit to compare with, such as main or HEAD~1")
    return base


def _head(head: str, *, worktree: bool) -> str | None:
    if worktree and head != "HEAD":
        raise GateError(f"--head: {head!r} cannot be judged with --worktree; allowed: one of them")
    return None if worktree else head


def _tiers(text: str) -> tuple[int, ...]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in TIERS or names.count(name) > 1:
            raise GateError(f"--tiers: {text!r} is not allowed; allowed: {', '.join(TIERS)}, each once, with commas")
    return tuple(sorted(map(int, names)))


def _budget(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise GateError(f"--budget: {error}; allowed: text such as 90s or 5m") from error


def _summary_file() -> Path | None:
    """Return the file in which a job of GitHub Actions collects the summaries of its steps, or None."""
    name = os.environ.get("GITHUB_STEP_SUMMARY")
    try:
        return output_path(name) if name else None
    except ValueError as error:
        raise GateError(f"GITHUB_STEP_SUMMARY: {error}") from error


def _check_writable(path: Path) -> None:
    folder = path.absolute().parent
    if len(os.fsencode(path.name)) > _NAME_MAX:
        raise GateError(f"{str(path)!r} cannot be written: {os.strerror(errno.ENAMETOOLONG)}")
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK | os.X_OK) or os.path.isdir(path):
        raise GateError(f"{str(path)!r} cannot be written; allowed: a file in a folder that exists")


def _check_replaceable(files: Mapping[str, Path]) -> None:
    """Raise GateError if a path is a device or a pipe, which a file would replace, or is given twice."""
    taken: dict[str, str] = {}
    for name, path in files.items():
        if path.exists() and not path.is_file():
            raise GateError(f"{str(path)!r} cannot be written; allowed: a file, no device and no pipe")
        first = taken.setdefault(os.path.realpath(path), name)
        if first != name:
            raise GateError(f"--{name}: {str(path)!r} is the file of --{first} too; allowed: one for each")


def _write(
    found: Judgement, writers: Mapping[Path, Callable[[Judgement], str]], summary: Path | None, *, github: bool
) -> None:
    """Write the judgement's files, GitHub's summary and its annotations. Raise GateError if a file is unwritable."""
    try:
        for path, text in writers.items():
            replace_text(path, text(found))
        if summary is not None:
            with summary.open("a", encoding="utf-8") as file:
                file.write(gate_markdown(found))
    except OSError as error:
        raise GateError(f"{error.filename}: cannot be written: {error.strerror}") from error
    if github:
        sys.stderr.write(annotations(found))  # GitHub's runner reads annotations from both streams


def _interrupted(*_: object) -> NoReturn:
    raise KeyboardInterrupt
