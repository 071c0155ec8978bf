"""`dpbench export`: records as rows for other tools."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from dpbench.cli.measured import write_rows
from dpbench.cli.options import option
from dpbench.cli.terminal import warn
from dpbench.errors import ExitCode, WrongInputError
from dpbench.records.record import Record
from dpbench.records.store import read_rows
from dpbench.report.rows import Format, RowKind, rows_of, to_bytes
from dpbench.text.outputs import check_output


def export(
    records: Annotated[list[Path], typer.Argument(help="Files of records, such as results/runs/*.jsonl.")],
    to: Annotated[
        Format, option("csv; parquet, which needs pyarrow; or action, the JSON of github-action-benchmark.")
    ] = Format.CSV,
    rows: Annotated[RowKind, option("A row is a case over its rounds, or a sample.")] = RowKind.CASES,
    output: Annotated[Path | None, option("The file to write; standard output by default.", is_output=True)] = None,
) -> ExitCode:
    """Write records as rows: CSV, Parquet, or JSON for github-action-benchmark."""
    if to is Format.ACTION and rows is RowKind.SAMPLES:
        raise WrongInputError("--rows: 'samples' is not for --to action; allowed: cases")
    if to is Format.PARQUET and output is None:
        raise WrongInputError("--output: is missing, and parquet is binary; allowed: a file")
    if output is not None:
        check_output("--output", output, records)
    contents = [read_rows(file, Record) for file in records]
    warn([warning for content in contents for warning in content.warnings])
    exported = rows_of([record for content in contents for record in content.rows], rows)
    if output is None:
        sys.stdout.write(to_bytes(exported, to).decode())
    else:
        write_rows(exported, to, output, "--output")
    return ExitCode.OK
