"""Records as flat rows, for a spreadsheet, a data frame or another tool. Pure but for writing parquet.

csv       text that begins like a formula is quoted by an apostrophe, so that a spreadsheet executes none
parquet   by pyarrow
action    customSmallerIsBetter of github-action-benchmark: a JSON array of the cases with a time
"""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from enum import StrEnum

from dpbench.analysis.compare_variants import ComparedCase
from dpbench.analysis.summary import Summary, summarise
from dpbench.errors import WrongInputError
from dpbench.records.record import Environment, Record
from dpbench.report.case_columns import AXES, CASE_COLUMNS
from dpbench.report.table import exported
from dpbench.text.outside import one_line

Cell = str | int | float | None
FlatRow = Mapping[str, Cell]
_FORMULA = ("=", "+", "-", "@")


class RowKind(StrEnum):
    """Cases are of one run, over its rounds."""

    CASES = "cases"
    SAMPLES = "samples"


class Format(StrEnum):
    CSV = "csv"
    PARQUET = "parquet"
    ACTION = "action"


def rows_of(records: Sequence[Record], table: RowKind) -> list[FlatRow]:
    """In the order of the records. Units are in the names; None is what was not measured.

    A failed record has no environment. Its row has the machine, torch and commit of the other records of its run.
    """
    environments = {record.run: record.environment for record in records if record.environment is not None}
    if table is RowKind.SAMPLES:
        return [
            {**_run(record, environments), **axes, "round": record.round, "sample": number, "step_time_s": step_time_s}
            for record in records
            for axes in [exported(AXES, ComparedCase(Summary(record.case, record.outcome)))]
            for number, step_time_s in enumerate(record.step_times_s)
        ]
    of_case: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        of_case.setdefault((record.run, record.case.id), []).append(record)
    return [
        _run(next((record for record in rounds if record.environment), rounds[0]), environments)
        | exported(CASE_COLUMNS, ComparedCase(summarise(rounds)))
        for rounds in of_case.values()
    ]


def _run(record: Record, environments: Mapping[str, Environment]) -> dict[str, Cell]:
    machine = record.environment or environments.get(record.run)
    return {
        "run": record.run,
        "hostname": machine.hostname if machine else None,
        "gpus": ", ".join(record.environment.gpus) if record.environment else None,
        "torch": machine.torch if machine else None,
        "commit": machine.commit if machine else None,
    }


def to_bytes(rows: Sequence[FlatRow], form: Format) -> bytes:
    """A file's content. Raises WrongInputError if pyarrow is wanted and missing."""
    if form is Format.PARQUET:
        return _parquet(rows)
    return (_csv(rows) if form is Format.CSV else _action(rows)).encode()


def _csv(rows: Sequence[FlatRow]) -> str:
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([list(rows[0]), *([_inert(value) for value in row.values()] for row in rows)] if rows else [])
    return out.getvalue()


def _inert(value: object) -> object:
    if not isinstance(value, str):
        return value
    line = one_line(value)
    return f"'{line}" if line.startswith(_FORMULA) else line


def _action(rows: Sequence[FlatRow]) -> str:
    entries: list[FlatRow] = []
    for row in (row for row in rows if row["step_time_s"] is not None):
        name = " ".join(str(row[key]) for key in ("variant", "workload", "batch_items", "devices", "mode"))
        entry = {"name": name, "unit": "s", "value": row["step_time_s"]}
        if row["step_time_low_s"] is not None:
            entry["range"] = f"{row['step_time_low_s']:.6g} to {row['step_time_high_s']:.6g}"
        entries.append({**entry, "extra": f"run {row['run']}, commit {row['commit']}"})
    return json.dumps(entries, indent=1) + "\n"


def _parquet(rows: Sequence[FlatRow]) -> bytes:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        allowed = "csv, or pip install 'torch-dpbench[parquet]'"
        raise WrongInputError(f"--to: 'parquet' needs pyarrow, which is not installed; allowed: {allowed}") from None
    out = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.Table.from_pylist(list(rows)), out)
    return bytes(out.getvalue())
