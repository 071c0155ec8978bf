"""What an examination of the machine came to, one finding a line."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict


class Severity(StrEnum):
    """`note` may matter to who reads the numbers; `unreliable` spoils them."""

    OK = "ok"
    NOTE = "note"
    UNRELIABLE = "unreliable"


class Finding(BaseModel):
    """`value` is for people, with its unit; `advice` says what they can do about it, as nothing is changed here."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    severity: Severity
    what: str
    value: str
    advice: str | None = None


class Findings(BaseModel):
    """The answer of the child that examines."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    findings: tuple[Finding, ...]


def ok(what: str, value: str) -> Finding:
    return Finding(severity=Severity.OK, what=what, value=value)


def note(what: str, value: str, advice: str | None = None) -> Finding:
    return Finding(severity=Severity.NOTE, what=what, value=value, advice=advice)


def unreliable(what: str, value: str, advice: str) -> Finding:
    return Finding(severity=Severity.UNRELIABLE, what=what, value=value, advice=advice)


def unknown(what: str, reason: str) -> Finding:
    return note(what, f"unknown: {reason}")
