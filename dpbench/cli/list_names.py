"""`dpbench list`: what may be named; no machine is asked."""

import typer

from dpbench.cli.shared import Json, example, show
from dpbench.errors import ExitCode
from dpbench.report.vocabulary import vocabulary_json, vocabulary_text


def list_names(as_json: Json = False) -> ExitCode:
    """List variants and their parameters, workloads, modes and metrics."""
    show(vocabulary_json() if as_json else vocabulary_text())
    return ExitCode.OK


def add_to(app: typer.Typer) -> None:
    app.command("list", epilog=example("dpbench list"))(list_names)
