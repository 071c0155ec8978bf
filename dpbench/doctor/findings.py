"""A finding is one line about something that may disturb a measurement on this machine."""

from enum import StrEnum

from dpbench.text.validated import Frozen

UNKNOWN = "unknown: "
"""Begins a value that could not be read."""


class Severity(StrEnum):
    """OK is harmless, NOTE may disturb measurements, UNRELIABLE makes them wrong."""

    OK = "ok"
    NOTE = "note"
    UNRELIABLE = "unreliable"


class Finding(Frozen):
    severity: Severity
    what: str
    value: str
    advice: str | None = None


class Findings(Frozen):
    findings: tuple[Finding, ...]


def ok(what: str, value: str) -> Finding:
    return Finding(severity=Severity.OK, what=what, value=value)


def note(what: str, value: str, advice: str | None = None) -> Finding:
    return Finding(severity=Severity.NOTE, what=what, value=value, advice=advice)


def note_if(matters: bool, what: str, value: str, advice: str) -> Finding:
    return note(what, value, advice) if matters else ok(what, value)


def unreliable(what: str, value: str, advice: str) -> Finding:
    return Finding(severity=Severity.UNRELIABLE, what=what, value=value, advice=advice)


def unknown(what: str, reason: str) -> Finding:
    return note(what, f"{UNKNOWN}{reason}")
