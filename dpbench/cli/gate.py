"""`dpbench gate`: is a commit slower than another?"""

import os
import re
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, NoReturn

from dpbench.cases.project_file import PROJECT_FILE
from dpbench.cases.variants import split_list
from dpbench.cli.options import Json, option, output_path
from dpbench.cli.terminal import show
from dpbench.errors import ExitCode, GateError, GateInputError, WrongInputError
from dpbench.gate.history import history_path
from dpbench.gate.judgement import Judgement
from dpbench.gate.prepare import GateRequest
from dpbench.gate.revisions import Repository
from dpbench.gate.run import UnkeptError, broken_judgement, run_gate
from dpbench.gate.settings import SETTINGS, Selection
from dpbench.judge.decision import Verdict
from dpbench.measure.borrowed.asv_conf import split_name
from dpbench.report.gate.forms import EXIT_CODES, gate_json, gate_markdown, gate_text
from dpbench.report.gate.per_benchmark import annotations, gate_junit
from dpbench.report.progress import stages
from dpbench.text.files import refuse_links, replace_text
from dpbench.text.outputs import check_output
from dpbench.text.quantities import parse_duration

TIERS = ("0", "1", "2")
_FORMS: Mapping[str, Callable[[Judgement], str]] = {
    "comment": gate_markdown,
    "junit": gate_junit,
}


def gate(
    base: Annotated[str | None, option("Compare with the merge base of head and this commit, such as main.")] = None,
    base_exact: Annotated[
        bool,
        option("Compare with the commit of --base itself, not with the merge base.", "--base-exact", is_rare=True),
    ] = False,
    head: Annotated[str, option("The commit to judge.")] = "HEAD",
    worktree: Annotated[bool, option("Judge the working tree instead of a commit.", "--worktree")] = False,
    tiers: Annotated[
        str | None,
        option(
            "0 exact counters, 1 step times side by side, 2 drifts in the history; 0, and 1 unless the machine is busy."
        ),
    ] = None,
    budget: Annotated[
        str | None,
        option("Time for all, such as 90s or 12m; the settings' own or 5m by default; clear cases end early."),
    ] = None,
    wait_for_quiet: Annotated[str, option("Time to wait for a machine that is too busy for times, such as 10m.")] = "0",
    settings: Annotated[Path | None, option("TOML file; benchmarks/gate.toml or pyproject.toml by default.")] = None,
    asv: Annotated[
        str | None, option("Measure asv's benchmarks that match: an EXPRESSION, or CONFIG.json:EXPRESSION.")
    ] = None,
    pytest: Annotated[str | None, option("Measure what pytest-benchmark does in this file, folder or node id.")] = None,
    results: Annotated[Path, option("Folder of the history.")] = Path("results"),
    comment: Annotated[Path | None, option("Write a pull-request comment.", is_output=True)] = None,
    junit: Annotated[Path | None, option("Write JUnit XML.", is_output=True)] = None,
    github: Annotated[bool, option("Write annotations and the step's summary.", "--github")] = False,
    as_json: Json = False,
) -> ExitCode:
    """Judge whether a commit is slower than another: exit 0 pass, 1 slower, 4 undecided, 3 broken."""
    signal.signal(signal.SIGTERM, _interrupted)  # so that a cancelled job of CI cleans up, as after Ctrl-C
    named = {"comment": comment, "junit": junit}
    files = {name: path for name, path in named.items() if path is not None}
    writers = {path: _FORMS[name] for name, path in files.items()}
    asked = GateRequest(
        base=_given(base),
        head=_head(head, worktree=worktree),
        base_exact=base_exact,
        tiers=_tiers("0,1" if tiers is None else tiers),
        budget_s=None if budget is None else _duration("budget", budget),
        takes_times_anyway=tiers is not None,
        wait_s=0.0 if wait_for_quiet == "0" else _duration("wait-for-quiet", wait_for_quiet),
        settings=settings,
        results=results,
        borrowed=_borrowed(asv, pytest),
    )
    inputs = [settings or SETTINGS, PROJECT_FILE, (pytest or "").partition("::")[0], history_path(results)]
    summary = _checked_summary(files, [Path(str(path)) for path in inputs], github=github)
    judgement, failure = _judged(asked)
    if as_json:
        show(gate_json(judgement))
    elif judgement.verdict is not Verdict.BROKEN:
        show(gate_text(judgement))
    _write(judgement, writers, summary, github=github)
    if failure is not None:
        raise failure
    return EXIT_CODES[judgement.verdict]


def _judged(asked: GateRequest) -> tuple[Judgement, GateError | None]:
    """The judgement, and the error that broke the gate or lost its line of history."""
    try:
        with stages() as say:
            return run_gate(asked, progress=say), None
    except WrongInputError:
        raise
    except UnkeptError as error:
        return error.judgement, error
    except GateError as error:
        return broken_judgement(asked, str(error)), error


def _checked_summary(files: Mapping[str, Path], inputs: list[Path], *, github: bool) -> Path | None:
    """Raise WrongInputError if a file cannot be written, would replace an input, or is given twice."""
    summary, taken = _summary_file() if github else None, dict[str, str]()
    if summary is not None and not summary.exists():
        check_output("GITHUB_STEP_SUMMARY", summary)
    for name, path in files.items():
        check_output(f"--{name}", path, inputs)
        first = taken.setdefault(os.path.realpath(path), name)
        if first != name:
            raise GateInputError(f"--{name}: {str(path)!r} is the file of --{first} too; allowed: one for each")
    return summary


def _given(base: str | None) -> str:
    if base is None:
        raise GateInputError("--base: is missing; allowed: a commit to compare with, such as main or HEAD~1")
    return base


def _head(head: str, *, worktree: bool) -> str | None:
    if worktree and head != "HEAD":
        raise GateInputError(f"--head: {head!r} cannot be judged with --worktree; allowed: one of them")
    return None if worktree else head


def _tiers(text: str) -> tuple[int, ...]:
    names = split_list(text)
    for name in names:
        if name not in TIERS or names.count(name) > 1:
            raise GateInputError(
                f"--tiers: {text!r} is not allowed; allowed: {', '.join(TIERS)}, each once, with commas"
            )
    return tuple(sorted(map(int, names)))


def _borrowed(asv: str | None, pytest: str | None) -> tuple[Selection, ...]:
    try:
        re.compile(asv or "")
    except re.error as error:
        raise GateInputError(f"--asv: {asv!r}: {error}; allowed: a regular expression") from error
    texts = {"asv": asv and _from_top(asv), "pytest": pytest}
    return tuple(Selection(**{suite: text}, pattern=True) for suite, text in texts.items() if text)


def _from_top(asv: str) -> str:
    """A configuration's path in the current folder as one from the repository's top."""
    named, rest = split_name(asv)
    if named is None or not Path(named).is_file():
        return asv
    return f"{os.path.relpath(Path(named).resolve(), Repository(Path.cwd()).root)}:{rest}"


def _duration(name: str, text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise GateInputError(f"--{name}: {error}; allowed: text such as 90s or 5m") from error


def _summary_file() -> Path | None:
    """Where a job of GitHub Actions collects the summaries of its steps, or None."""
    name = os.environ.get("GITHUB_STEP_SUMMARY")
    try:
        return output_path(name) if name else None
    except ValueError as error:
        raise GateInputError(f"GITHUB_STEP_SUMMARY: {error}") from error


def _write(
    judgement: Judgement, writers: Mapping[Path, Callable[[Judgement], str]], summary: Path | None, *, github: bool
) -> None:
    """Raise GateError if a file cannot be written."""
    try:
        for path, text in writers.items():
            replace_text(path, text(judgement))
        if summary is not None:
            refuse_links(summary)
            with summary.open("a", encoding="utf-8") as file:
                file.write(gate_markdown(judgement))
    except OSError as error:
        file_name = error.filename or summary  # a full disk shows in a write, which names no file
        raise GateError(f"{file_name}: cannot be written: {error.strerror}") from error
    if github:
        sys.stderr.write(annotations(judgement))  # GitHub's runner reads annotations from both streams


def _interrupted(*_: object) -> NoReturn:
    raise KeyboardInterrupt
