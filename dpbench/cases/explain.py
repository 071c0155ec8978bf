"""Error texts for wrong values: one line with the key, the value and what is allowed."""

from collections.abc import Iterable
from difflib import get_close_matches

from pydantic import BaseModel, ValidationError

_LONGEST_VALUE = 80


def one_of(names: Iterable[str]) -> str:
    return ", ".join(names)


def nearest(text: object, names: Iterable[str]) -> str:
    """``, did you mean 'tuned'?`` if a name is close to the text, else an empty text."""
    close = get_close_matches(text, [str(name) for name in names], n=1) if isinstance(text, str) else []
    return f", did you mean {close[0]!r}?" if close and close[0] != text else ""


def explain(model: type[BaseModel], error: ValidationError) -> tuple[str, str]:
    """The first wrong key and what is wrong with it.

    The field's `description` says what is allowed, and its `examples` are the names for suggestions.
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
