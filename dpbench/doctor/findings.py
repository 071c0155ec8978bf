"""A finding: one line about something that may disturb a measurement on this machine."""

from enum import StrEnum

from dpbench.text.frozen import Frozen

UNKNOWN = "unknown: "
"""The begin of a value that the examination could not read."""


class Severity(StrEnum):
    """OK is harmless, NOTE may disturb measurements, UNRELIABLE makes them wrong."""

    OK = "ok"
    NOTE = "note"
    UNRELIABLE = "unreliable"


class Finding(Frozen):
    """One line of the examination.

    `what` names the subject. `value` is text for people and includes the unit. `advice` says what the user can do:
    the examination changes no setting itself.
    """

    severity: Severity
    what: str
    value: str
    advice: str | None = None


class Findings(Frozen):
    """The message that the examining child sends to its parent."""

    findings: tuple[Finding, ...]


def ok(what: str, value: str) -> Finding:
    """Return a finding that does not disturb measurements."""
    return Finding(severity=Severity.OK, what=what, value=value)


def note(what: str, value: str, advice: str | None = None) -> Finding:
    """Return a finding that may matter."""
    return Finding(severity=Severity.NOTE, what=what, value=value, advice=advice)


def note_if(matters: bool, what: str, value: str, advice: str) -> Finding:
    """Return a note if it `matters`, and a finding that is ok otherwise."""
    return note(what, value, advice) if matters else ok(what, value)


def unreliable(what: str, value: str, advice: str) -> Finding:
    """Return a finding that makes measurements wrong."""
    return Finding(severity=Severity.UNRELIABLE, what=what, value=value, advice=advice)


def unknown(what: str, reason: str) -> Finding:
    """Return a note that the examination could not read the subject, and why."""
    return note(what, f"{UNKNOWN}{reason}")
