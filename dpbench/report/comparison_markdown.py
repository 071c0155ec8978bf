"""Comparisons as GitHub's markdown, for an issue or a pull request: what to use, the times, and the rest folded."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from dpbench.report.comparison_table import details, notes, times_table
from dpbench.report.headline import headline
from dpbench.report.markdown import MAX_CHARACTERS, code, escaped, items, row
from dpbench.report.wide_table import WideTable
from dpbench.results.compare import Comparison, Comparisons

_MOST_NOTES = 20
_ROOM_AT_THE_END = 400
_INDENT = "&emsp;"


def comparisons_markdown(found: Sequence[tuple[str, Comparisons]]) -> str:
    """Return the tables of each pair of a machine's name and its comparisons. A name may be empty.

    The text is short enough for an issue on GitHub: settings that do not fit are left out and counted.
    """
    text, left_out = "", 0
    for name, comparisons in found:
        text += f"## {escaped(name)}\n\n" if name else ""
        for comparison in comparisons.comparisons:
            part = _fitting(comparison, MAX_CHARACTERS - _ROOM_AT_THE_END - len(text))
            text += part
            left_out += not part
        differing = [f"{field} is {' / '.join(map(str, values))}" for field, values in comparisons.differences.items()]
        text += "\n".join(items([f"records of different environments: {each}" for each in differing], _MOST_NOTES))
    return text + (f"{left_out:,} more settings do not fit into {MAX_CHARACTERS:,} characters.\n" if left_out else "")


def _fitting(comparison: Comparison, room: int) -> str:
    """Return the setting with its details, else without, else nothing."""
    short = "\n".join(_setting(comparison)) + "\n"
    folded = list(_details(comparison))
    whole = short + "\n".join(folded) + "\n" if folded else short
    return next((text for text in (whole, short) if len(text) <= room), "")


def _setting(comparison: Comparison) -> Iterator[str]:
    said, table = headline(comparison), times_table(comparison)
    yield from (f"#### {escaped(table.title)}", "")
    yield from (f"**{escaped(said.answer)}** {' '.join(map(escaped, said.sentences[1:]))}", "")
    yield from _rows(table)
    yield from items(list(notes(comparison)), _MOST_NOTES)


def _details(comparison: Comparison) -> Iterator[str]:
    parts = list(details(comparison))
    if not parts:
        return
    yield from ("<details><summary>Devices and phases</summary>", "")
    for part in parts:
        if isinstance(part, Text):
            yield from items([part.plain] if part.plain else [], _MOST_NOTES)
        else:
            yield from _table(part)
    yield from ("</details>", "")


def _table(table: WideTable) -> Iterator[str]:
    yield from (f"#### {escaped(table.title)}", "")
    yield from _rows(table)


def _rows(table: WideTable) -> Iterator[str]:
    columns = (*table.keys, *table.columns)
    yield row(escaped(column.header) for column in columns)
    yield row([":--"] * len(table.keys) + ["--:"] * len(table.columns))
    for name, *cells in zip(*(column.cells for column in columns), strict=True):
        indent = _INDENT * ((len(name) - len(name.lstrip(" "))) // 2)
        yield row([indent + code(name.replace("\n", "")) if name.strip() else "", *map(escaped, cells)])
    yield ""
