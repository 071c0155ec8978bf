"""`dpbench report`: a page of results from files of records."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from dpbench.cases.variants import VariantId
from dpbench.cli.measured import show_named_comparisons
from dpbench.cli.options import Form, Output, Reference, option
from dpbench.cli.page import tell_page
from dpbench.cli.terminal import show_lines, warn
from dpbench.errors import ExitCode, GateError, WrongInputError, naming
from dpbench.gate.revisions import Repository
from dpbench.records.record import Record
from dpbench.report.page.content import page_of
from dpbench.report.page.document import write_page
from dpbench.report.page.inputs import read_inputs
from dpbench.report.page.machines import by_environment
from dpbench.report.page.over_commits import check_history, of_two_commits
from dpbench.text.outputs import check_output


def report(
    files: Annotated[
        list[Path],
        typer.Argument(help="Files of records, the gate's history, and .json files of `dpbench project --json`."),
    ],
    shown: Output,
    output: Annotated[
        Path | None,
        option(
            "The HTML file; report.html beside the first file by default, or the name of a single file.", is_output=True
        ),
    ] = None,
    reference: Reference = None,
    commits: Annotated[tuple[str, str] | None, option("Compare two commits, such as --commits 1a2b3c 4d5e6f.")] = None,
    history: Annotated[
        bool, option("A history over days if the records are of one commit; else over commits.", "--history")
    ] = False,
) -> ExitCode:
    """Print what records say, and write one HTML page with charts and tables. It needs no network."""
    with naming("reference"):
        chosen = None if reference is None else VariantId(reference)
    if output is None:  # that of one file is its own; several must not replace the page of the first
        output = files[0].with_suffix(".html") if len(files) == 1 else files[0].parent / "report.html"
    check_output("--output", output, files)
    inputs = read_inputs(files)
    if inputs.is_empty:
        reasons = "".join(f"; {reason}" for reason in inputs.left_out[:1])
        raise WrongInputError(f"{', '.join(map(str, files))}: no line is a record{reasons}")
    warn(inputs.left_out)
    if commits is not None:
        if history:
            raise WrongInputError("--history: cannot be combined with --commits; allowed: one of them")
        inputs = of_two_commits(inputs, *commits)
    else:
        if history:
            check_history(inputs)
        inputs = replace(inputs, commit_dates=_commit_dates(inputs.records), with_days=history)
    machines = by_environment(inputs.records, inputs.skipped, inputs.counts, chosen)
    named = [(machine.name if len(machines) > 1 else "", machine.compared) for machine in machines]
    page = page_of(inputs, machines)
    write_page(page, output)
    if shown.form is not Form.TEXT or inputs.records:
        show_named_comparisons(named, shown.form, details=shown.details)
    if shown.form is Form.TEXT:
        show_lines([answer for machine in page.machines for section in machine.sections for answer in section.answers])
    tell_page(output, shown)
    return ExitCode.OK


def _commit_dates(records: Sequence[Record]) -> Mapping[str, float]:
    if len({record.environment.commit for record in records if record.environment}) < 2:
        return {}
    try:
        return Repository(Path.cwd()).dates()
    except GateError:
        return {}
