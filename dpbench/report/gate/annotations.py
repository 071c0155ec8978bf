"""A gate's judgement as annotations in GitHub Actions: workflow commands, one a line."""

from collections.abc import Iterator

from dpbench.gate.judgement import Judgement, Verdict
from dpbench.report.gate.per_benchmark import BenchmarkFinding, findings
from dpbench.report.gate.wording import headline, reliability

_LEVELS = {Verdict.SLOWER: "error", Verdict.BROKEN: "error", Verdict.UNDECIDED: "warning", Verdict.PASS: "notice"}


def annotations(judgement: Judgement) -> str:
    """Return a line for the whole unless it passes, and one for each benchmark that does not pass or is accepted.

    The whole comes first, because GitHub shows only ten errors and ten warnings of a step; the log has the rest
    (actions/toolkit, docs/problem-matchers.md).
    """
    return "".join(f"{line}\n" for line in _lines(judgement))


def _lines(judgement: Judgement) -> Iterator[str]:
    if judgement.verdict is not Verdict.PASS:
        message = "\n".join([headline(judgement), *reliability(judgement)])
        yield _command(_LEVELS[judgement.verdict], f"dpbench gate: {judgement.verdict}", message)
    found = findings(judgement)
    yield from (_annotation(finding) for finding in found if finding.verdict is not Verdict.PASS)
    passing = (finding for finding in found if finding.verdict is Verdict.PASS)
    yield from (_annotation(finding) for finding in passing if finding.is_notable)


def _annotation(finding: BenchmarkFinding) -> str:
    level = _LEVELS[finding.verdict]
    return _command(level, f"{finding.what}: {finding.benchmark}", f"{finding.benchmark}: {finding.message}")


def _command(level: str, title: str, message: str) -> str:
    """``::level title=...::message``, escaped as in actions/toolkit, packages/core/src/command.ts."""
    return f"::{level} title={_property(title)}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
