"""Exit codes, and the errors that the command line reports in one line.

Every error with an exit code derives from `ReportedError`. Its text is one line that names the field, its value and
what is allowed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """What a command's exit status means."""

    OK = 0
    """The command did what it was asked."""
    NEGATIVE = 1
    """Nothing was measured or exported; counts differ from the expectations; the machine is unreliable; or a commit is
    slower."""
    WRONG_INPUT = 2
    """One line names the field, its value and what is allowed. Nothing was written."""
    FAILED = 3
    """The machine cannot be used as it is, counting failed, or a gate could not judge."""
    UNDECIDED = 4
    """A gate cannot say whether a commit is slower."""
    INTERRUPTED = 130
    """Records written so far are kept."""


class ReportedError(Exception):
    """An error that ends a command with one line on standard error and `exit_code`."""

    exit_code: ClassVar[ExitCode] = ExitCode.FAILED


class WrongInputError(ReportedError, ValueError):
    """An option, file or field has a value that is not allowed."""

    exit_code = ExitCode.WRONG_INPUT


@contextmanager
def naming(field: str) -> Iterator[None]:
    """Turn a ValueError into a WrongInputError with the field's name."""
    try:
        yield
    except ValueError as error:
        raise WrongInputError(f"{field}: {error}") from error


class UnusableMachineError(ReportedError):
    """This machine cannot be used as it is."""


class GateError(ReportedError):
    """A gate cannot judge; the reason is the text."""


class GateInputError(WrongInputError, GateError):
    """An option, a file or a commit that a gate was asked for is not allowed."""
