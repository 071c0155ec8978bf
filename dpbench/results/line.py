"""A record as one line of JSON, and back."""

from typing import Any, TypeAlias

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from dpbench.results.record import SCHEMA, Environment, Record
from dpbench.sweep.case import Case


class LineError(ValueError):
    """What is wrong with a line, in one line."""


def to_line(record: Record) -> bytes:
    """The record with a newline at its end; a NaN among the metrics becomes null, as JSON has none."""
    line = to_json(record.to_json(), inf_nan_mode="null") + b"\n"
    parse_line(line)  # a line that cannot be read again would spoil the file
    return line


Known: TypeAlias = dict[bytes, Case | Environment | None]
"""Cases and environments of the lines before, by their JSON: most lines repeat one, and they are half of a record."""


def parse_line(line: bytes, known: Known | None = None) -> Record:
    """Raises LineError for what is no record, or one of a schema that this version does not know.

    What is `known` is shared by the records, and made once.
    """
    known = {} if known is None else known
    try:
        fields = from_json(line, allow_inf_nan=False)
    except ValueError as error:
        raise LineError(f"is not JSON: {error}") from error
    schema = fields.get("schema") if isinstance(fields, dict) else None
    if type(schema) is not int or schema < 1:
        raise LineError(f"has no schema number; allowed: 1 to {SCHEMA}")
    if schema > SCHEMA:
        raise LineError(f"has schema {schema}, newer than this dpbench knows; allowed: 1 to {SCHEMA}")
    if isinstance(fields.get("case"), dict):
        fields["case"].pop("id", None)  # derived from the other fields, for readers without dpbench
    if schema == 1:
        _upgrade(fields)
    keys = {name: to_json(fields[name]) for name in ("case", "environment") if isinstance(fields.get(name), dict)}
    fields.update({name: known[key] for name, key in keys.items() if key in known})
    try:
        record = Record.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        raise LineError(f"is no record: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    known.update({key: getattr(record, name) for name, key in keys.items()})
    return record


def _upgrade(fields: dict[str, Any]) -> None:
    """In schema 1 an allocator's peak was a bare number."""
    match fields:
        case {"metrics": {"peak_device_bytes": dict(peaks)}}:
            fields["metrics"]["peak_device_bytes"] = {device: {"value": peak} for device, peak in peaks.items()}
