"""JSON Lines, each safe on disk before the next run begins."""

from dataclasses import dataclass
from pathlib import Path

from dpbench.elastic.elastic_record import ElasticRecord, parse_elastic_line, to_elastic_line
from dpbench.records.record import RecordLineError
from dpbench.records.store import StoreError
from dpbench.text.files import append_once, reason_of
from dpbench.text.outside import open_input


@dataclass(frozen=True)
class ElasticContents:
    """Records in the order of writing; `warnings` say which lines were left out."""

    records: tuple[ElasticRecord, ...]
    warnings: tuple[str, ...] = ()


def append_elastic(path: Path, record: ElasticRecord) -> None:
    """Raise StoreError."""
    try:
        append_once(path, to_elastic_line(record), "a record")
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {reason_of(error)}") from error


def read_elastic(path: Path) -> ElasticContents:
    """Lines that are no record, such as a torn last one, are left out and named. Raise StoreError."""
    records: list[ElasticRecord] = []
    warnings: list[str] = []
    try:
        with open_input(path) as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    records.append(parse_elastic_line(line))
                except RecordLineError as error:
                    warnings.append(f"{path}: line {number} {error}; it was left out")
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    return ElasticContents(tuple(records), tuple(warnings))
