"""The chart of ratios over time: each line begins at 1, and above 1 it is slower. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from dpbench.report.page.drawing import drawn
from dpbench.report.page.parts import Cell, Columns, DataRow, Panel
from dpbench.report.page.theme import coloured
from dpbench.stats.estimate import Estimate
from dpbench.text.quantities import number

MS = 1e-3
_MOST_PLACES = 300
_MOST_ROWS = 12_000


def point(place: str, series: str, ratio: Estimate, step_s: float, rounds: int, **cells: Cell) -> DataRow:
    """Return the row of a dot: the ratio of a step time at a place in time. `series` is its line's name."""
    low, high = ratio.ends
    return {
        "place": place,
        "series": series,
        **{name: float(f"{end:.5g}") for name, end in (("ratio", ratio.value), ("low", low), ("high", high))},
        "shown": ratio.text(),
        "ms": number(step_s / MS),
        "rounds": rounds,
        "is_slower": False,
        **cells,
    }


def panel_over_time(
    panel: Panel, places: Sequence[str], colours: Sequence[tuple[str, str]], more: Columns, what: str
) -> Panel | None:
    """Return the panel with its chart; None without rows.

    It has the newest of the `places`, each of which is `what`, and as many choices as have room. Its columns are those
    of `point` and `more`.
    """
    newest = places[-_MOST_PLACES:]
    rows = _with_room(panel, set(newest))
    if not rows:
        return None
    text = panel.text
    if len(places) > len(newest):
        text += f" The newest {_MOST_PLACES} of {len(places):,} are drawn."
    if left_out := len(panel.rows) - len(rows):
        text += f" Left out, without room or without a newer {what}: {left_out:,} of {len(panel.rows):,} choices."
    columns = {"place": what, "series": "line", "shown": "time over the first", "ms": "ms a step", "rounds": "rounds"}
    columns = {**columns, **more}
    axis, colour = f"{what}s, in the order of time", coloured("series", colours)
    spec = drawn("history", columns, axis=axis, places=newest, colour=colour)
    return replace(panel, text=text, columns=columns, rows=rows, spec=spec)


def _with_room(panel: Panel, places: Collection[str]) -> dict[str, Sequence[DataRow]]:
    """Return the rows at these places, of as many choices as have room. The panel's first choice goes before others."""
    kept: dict[str, Sequence[DataRow]] = {}
    room = _MOST_ROWS
    for key in sorted(panel.rows, key=lambda key: key != panel.first):
        own = [row for row in panel.rows[key] if row["place"] in places]
        if own and len(own) <= room:
            kept[key], room = own, room - len(own)
    return {key: kept[key] for key in panel.labels if key in kept}


def counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def seconds_of(moment: str) -> float:
    """Return the seconds since 1970. A moment without a time zone is in UTC."""
    found = datetime.fromisoformat(moment)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
