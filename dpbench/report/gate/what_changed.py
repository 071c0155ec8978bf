"""The code behind worse counters, as lines of text for every form."""

from collections.abc import Iterator, Sequence

from dpbench.gate.judgement import Blame, Cause, Judgement
from dpbench.sweep.outside import one_line

TITLE = "What changed"
MOST_GROUPS = 8
"""Groups of blames in a form: one call more changes several counters of every case."""
_LONGEST_TEXT = 60


def what_changed(judgement: Judgement, most: int = MOST_GROUPS) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return a heading and its lines for each group of worse counters with the same causes.

    The last heading says how many groups are left out.
    """
    groups: dict[tuple[str, ...], list[Blame]] = {}
    for blame in judgement.blames:
        groups.setdefault((blame.counter, *cause_lines(blame)), []).append(blame)
    shown = [(_heading(blames), lines) for (_, *lines), blames in list(groups.items())[:most]]
    more = [(f"... and {len(groups) - most:,} more counters", ())] if len(groups) > most else []
    return (*((heading, tuple(lines)) for heading, lines in shown), *more)


def cause_lines(blame: Blame) -> Iterator[str]:
    """Yield a line for each cause, and one for those that are left out."""
    yield from map(_line, blame.causes)
    if blame.more:
        yield f"... and {blame.more:,} more"


def _heading(blames: Sequence[Blame]) -> str:
    others = f" and {len(blames) - 1:,} more" if len(blames) > 1 else ""
    return one_line(f"{blames[0].counter} of {blames[0].benchmark}{others}")


def _line(cause: Cause) -> str:
    lines = ", ".join(map(str, cause.lines))
    text = cause.text if len(cause.text) <= _LONGEST_TEXT else f"{cause.text[:_LONGEST_TEXT]} ..."
    numbers = f"{cause.head - cause.base:+,} ({cause.base:,} -> {cause.head:,})"
    return one_line(f"{numbers} {cause.what}, in {cause.function} at {cause.file}:{lines}: {text}")
