"""The base of models that are read, the bounds of their numbers, and the line that says what is wrong.

The bounds are wide enough for any machine, and narrow enough to multiply a few values.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from dpbench.errors import WrongInputError
from dpbench.text.outside import one_line, quoted

_ABOUT_NAMES = ("missing", "extra_forbidden", "unexpected_keyword_argument")  # pydantic's errors without a wrong value
_LONGEST_VALUE = 80
MOST = 1e15
_YEARS = range(1970, 3000)


class Frozen(BaseModel):
    """The base of all that is read or sent."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


def _moment(text: str) -> str:
    try:
        is_known = datetime.fromisoformat(text).year in _YEARS
    except ValueError:
        is_known = False
    if not is_known:
        raise ValueError(
            f"{quoted(text)} is no date; allowed: such as 2026-01-31T12:00:00+00:00, from {_YEARS[0]} to {_YEARS[-1]}"
        )
    return text


Count = Annotated[int, Field(ge=0, lt=2**63)]
"""Bytes, cores, ranks, steps or nanoseconds."""
Items = Annotated[int, Field(ge=1, lt=2**31)]
"""Items in a batch, lanes, threads or machines."""
Positive = Annotated[float, Field(gt=1 / MOST, lt=MOST)]
"""A measured time in seconds, or a ratio of times."""
Real = Annotated[float, Field(ge=-MOST, le=MOST)]
"""Any other quantity with a unit, such as a difference of times."""
Moment = Annotated[str, AfterValidator(_moment)]
"""A moment in ISO 8601."""


def day_of(seconds: float) -> str:
    """The UTC day of seconds since 1970, such as ``2026-01-31``; at most that of the last year."""
    last_s = datetime(_YEARS[-1], 12, 31, tzinfo=UTC).timestamp()
    return datetime.fromtimestamp(max(0.0, min(seconds, last_s)), UTC).date().isoformat()


def one_of(names: Iterable[str]) -> str:
    return ", ".join(names)


def nearest(text: object, names: Iterable[str]) -> str:
    """``, did you mean 'tuned'?`` if a name is close to the text, else an empty text."""
    close = get_close_matches(text, [str(name) for name in names], n=1) if isinstance(text, str) else []
    return f", did you mean {close[0]!r}?" if close and close[0] != text else ""


Model = TypeVar("Model", bound=BaseModel)


def validated(model: type[Model], fields: Mapping[str, Any], place: Callable[[str], str]) -> Model:
    """Raises WrongInputError: `place` of the first wrong key, and what is wrong with it."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        key, complaint = explain(model, error)
        raise WrongInputError(f"{place(key)}: {complaint}") from error


def explain(model: type[BaseModel], error: ValidationError) -> tuple[str, str]:
    """The first wrong key and what is wrong with it.

    A field's `description` says what is allowed, its `examples` are names for suggestions.
    """
    first = error.errors()[0]
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    key, value = str(first["loc"][0]), first["input"]
    if first["type"] == "extra_forbidden":
        return key, f"unknown key{nearest(key, fields)}; allowed: {one_of(fields)}"
    allowed = f"allowed: {fields[key].description}"
    if first["type"] != "value_error":
        return key, f"{_shown(value)} is not allowed{nearest(value, fields[key].examples or ())}; {allowed}"
    reason = str(first["ctx"]["error"])
    return key, reason if "allowed" in reason else f"{reason}; {allowed}"


def _shown(value: object) -> str:
    text = repr(list(value) if isinstance(value, tuple) else value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."


def what_is_wrong(error: ValidationError) -> str:
    """In one line."""
    first = error.errors()[0]
    place = "".join(f"{part}." for part in first["loc"] if part != "[key]").removesuffix(".")
    reason = "missing" if first["type"] == "missing" else first["msg"].removeprefix("Value error, ")
    says_all = first["type"] in _ABOUT_NAMES or "; allowed: " in reason or isinstance(first["input"], dict)
    value = "" if says_all else f", not {quoted(first['input'])}"
    return one_line(f"{place}: {reason}{value}".removeprefix(": "))
