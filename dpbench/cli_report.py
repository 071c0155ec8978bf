"""The command `dpbench report`: a page of results from files of records."""

from pathlib import Path
from typing import Annotated

import typer

from dpbench.cli_page import Open, finish_page
from dpbench.cli_shared import Markdown, example, option, show_markdown
from dpbench.errors import ExitCode
from dpbench.report.comparison_markdown import comparisons_markdown
from dpbench.report.page.inputs import PageInputError, read_inputs
from dpbench.report.page.machines import by_machine
from dpbench.results.garbage import no_garbage_collection
from dpbench.sweep.variants import VariantId


def report(
    files: Annotated[
        list[Path], typer.Argument(help="Files of records, and of `dpbench project --json`; their names end in .json.")
    ],
    output: Annotated[Path, option("The HTML file to write.", is_output=True)] = Path("page.html"),
    reference: Annotated[str | None, option("Ratios are to this variant; to torch_dp or naive by default.")] = None,
    opens: Open = False,
    as_markdown: Markdown = False,
) -> ExitCode:
    """Write one HTML page with charts and tables of records. It needs no network."""
    chosen = None if reference is None else _variant(reference)
    with no_garbage_collection():
        found = read_inputs(files)
        finish_page(found, output, opens=opens, reference=chosen)
        if as_markdown:
            machines = by_machine(found.records, reference=chosen)
            names = [each.name if len(machines) > 1 else "" for each in machines]
            show_markdown(comparisons_markdown([*zip(names, (each.compared for each in machines), strict=True)]))
    return ExitCode.OK


def _variant(text: str) -> VariantId:
    try:
        return VariantId(text)
    except ValueError as error:
        raise PageInputError(f"reference: {error}") from error


def add_to(app: typer.Typer) -> None:
    """Add `report` to the command line."""
    app.command("report", epilog=example("dpbench report results/runs/*.jsonl --output page.html"))(report)
