"""The envelope of all that is kept: a row is an object of JSON with its schema and its kind, and a line of a file."""

from typing import Any, TypeVar

from pydantic import Field, ValidationError
from pydantic_core import from_json, to_json

from dpbench.text.outside import one_line, quoted
from dpbench.text.validated import Frozen, one_of, what_is_wrong

SCHEMA = 6
READS_OLDER = "640af4b2"
"""The last commit that reads rows of earlier schemas. Nothing was released with them."""


class Row(Frozen):
    """Each kind of row gives `kind` its name as the default."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    kind: str

    def to_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True)


RowT = TypeVar("RowT", bound=Row)


class RowError(ValueError):
    pass


class OtherKindError(RowError):
    """The row is of a kind that is not asked for."""


def to_line(row: Row) -> bytes:
    """A NaN becomes null."""
    return to_json(row.to_json(), inf_nan_mode="null") + b"\n"


def parse_line(line: bytes, *kinds: type[RowT]) -> RowT:
    """Raise RowError as `parse_row` does, and for a line that is not JSON."""
    try:
        fields = from_json(line, allow_inf_nan=False)
    except ValueError as error:
        raise RowError(one_line(f"is not JSON: {error}")) from error
    return parse_row(fields, *kinds)


def parse_row(fields: object, *kinds: type[RowT]) -> RowT:
    """A row of one of the kinds. Raise OtherKindError, or RowError for another schema or wrong fields."""
    if problem := _why_other_schema(fields):
        raise RowError(problem)
    assert isinstance(fields, dict)
    name, by_name = fields.get("kind"), {kind.model_fields["kind"].default: kind for kind in kinds}
    if not isinstance(name, str) or name not in by_name:
        raise OtherKindError(f"has kind {quoted(name)}; allowed: {one_of(by_name)}")
    try:
        return by_name[name].model_validate(fields)
    except ValidationError as error:
        raise RowError(f"is no {name}: {what_is_wrong(error)}") from error


def _why_other_schema(fields: object) -> str | None:
    schema = fields.get("schema") if isinstance(fields, dict) else None
    if type(schema) is not int or schema < 1:
        return f"has no schema number; allowed: {SCHEMA}"
    if schema < SCHEMA:
        return f"has schema {schema}, which dpbench of commit {READS_OLDER} reads; allowed: {SCHEMA}"
    return f"has schema {schema}, newer than this dpbench knows; allowed: {SCHEMA}" if schema > SCHEMA else None
