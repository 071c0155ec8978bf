"""What the simulator does not support: an error at once, or within `together` one error for all of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class UnsupportedError(NotImplementedError):
    """The text names what is not supported."""


_names: dict[str, None] | None = None


@contextmanager
def together() -> Iterator[None]:
    """Raise at the end, with all names, if anything inside was not supported; the results inside are then wrong."""
    global _names  # noqa: PLW0603 - of all threads: those of lanes, and those of a backward
    names = _names = dict[str, None]()
    try:
        yield
    except Exception:  # one that follows from a wrong result
        if not names:
            raise
    finally:
        _names = None
    if names:
        raise UnsupportedError("; ".join(names))


def result_instead(error: UnsupportedError, args: Any) -> Any:
    """The operator's first argument, within `together`; else raise the error."""
    if _names is None or not args:
        raise error
    _names[str(error)] = None
    return args[0]
