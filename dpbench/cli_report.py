"""The command `dpbench report`: a page of results from files of records."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from dpbench.cli_page import Open, finish_page, finish_page_of
from dpbench.cli_shared import Markdown, example, option, show_markdown
from dpbench.errors import ExitCode, GateError
from dpbench.gate.revisions import Repository
from dpbench.report.comparison_markdown import comparisons_markdown
from dpbench.report.page.history.compared import compared_page
from dpbench.report.page.history.gates import commits_of
from dpbench.report.page.history.tracks import check_history
from dpbench.report.page.inputs import PageInputError, PageInputs, read_inputs
from dpbench.report.page.machines import by_machine
from dpbench.results.garbage import no_garbage_collection
from dpbench.sweep.variants import VariantId


@no_garbage_collection()
def report(
    files: Annotated[
        list[Path],
        typer.Argument(help="Files of records, the gate's history, and .json files of `dpbench project --json`."),
    ],
    output: Annotated[Path, option("The HTML file to write.", is_output=True)] = Path("page.html"),
    reference: Annotated[str | None, option("Ratios are to this variant; to torch_dp or naive by default.")] = None,
    commits: Annotated[
        tuple[str, str] | None, typer.Option(help="Compare two commits, such as --commits 1a2b3c 4d5e6f.")
    ] = None,
    history: Annotated[
        bool, typer.Option("--history", help="Lines over days if the records are of one commit; else over commits.")
    ] = False,
    opens: Open = False,
    as_markdown: Markdown = False,
) -> ExitCode:
    """Write one HTML page with charts and tables of records. It needs no network."""
    chosen = None if reference is None else _variant(reference)
    found = read_inputs(files)
    if commits is not None:
        _refuse_beside_commits(reference=reference is not None, history=history, markdown=as_markdown)
        finish_page_of(compared_page(found, *commits), output, opens=opens)
        return ExitCode.OK
    if history:
        check_history(found)
    dated = replace(found, commit_dates=_commit_dates(found), with_days=history)
    finish_page(dated, output, opens=opens, reference=chosen)
    if as_markdown:
        machines = by_machine(found.records, reference=chosen)
        names = [each.name if len(machines) > 1 else "" for each in machines]
        show_markdown(comparisons_markdown([*zip(names, (each.compared for each in machines), strict=True)]))
    return ExitCode.OK


def _refuse_beside_commits(**given: bool) -> None:
    for name, is_given in given.items():
        if is_given:
            raise PageInputError(f"--{name}: cannot be combined with --commits; allowed: one of them")


def _commit_dates(found: PageInputs) -> Mapping[str, float]:
    """Return the dates of the present repository's commits; none if there is no repository or only one commit."""
    commits = {each.environment.commit for each in found.records if each.environment}
    if len(commits.union(commits_of(found.gates))) < 2:
        return {}
    try:
        return Repository(Path.cwd()).dates()
    except GateError:
        return {}


def _variant(text: str) -> VariantId:
    try:
        return VariantId(text)
    except ValueError as error:
        raise PageInputError(f"reference: {error}") from error


def add_to(app: typer.Typer) -> None:
    """Add `report` to the command line."""
    app.command("report", epilog=example("dpbench report results/runs/*.jsonl --output page.html"))(report)
