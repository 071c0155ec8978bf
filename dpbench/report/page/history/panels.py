"""The panels of a history: lines over commits or days, and the table of lasting changes."""

from collections.abc import Sequence

from dpbench.report.headline import place
from dpbench.report.page.history.changes import answers_of, change_fields, changes_panel, growth_of, word_of
from dpbench.report.page.history.line_chart import line_chart, order_axis
from dpbench.report.page.history.tracks import LastingChange, MachineHistory, Track
from dpbench.report.page.machines import MachineResults
from dpbench.report.page.parts import DataRow, Panel, Section, Shown
from dpbench.report.page.theme import coloured, tooltip, variant_colours
from dpbench.report.units import estimate, number

_MS = 1e-3
_MOST_ROWS = 12_000
_MOST_VERSIONS = 300


def history_section(number: int, found: MachineHistory, results: MachineResults) -> Section | None:
    """Return the section of a machine's history; None if no case was measured twice."""
    lines = _lines(found, results)
    if lines is None:
        return None
    panels = [lines] if not found.changes else [_table(found), lines]
    title = f"What changed over {_count(found)}?"
    return Section(f"m{number}-history", title, panels, _answers(found))


def _answers(found: MachineHistory) -> list[str]:
    lines = f"{len(found.tracks):,} {'case' if len(found.tracks) == 1 else 'cases'} over {_count(found)}"
    what = "days" if found.of_days else "commits"
    said = [_sentence(each) for each in found.changes]
    return answers_of(said, lines, what, found.longest, can_detect=found.can_detect)


def _sentence(found: LastingChange) -> str:
    """Return one change in words."""
    times = f"{number(found.before_s / _MS)} to {number(found.after_s / _MS)} ms"
    return (
        f"{found.case.variant} is {word_of(found.times)} since {found.since.name} of {found.since.day}: "
        f"{times}, {growth_of(found.times)}, {place(found.case)}."
    )


def _count(found: MachineHistory) -> str:
    return f"{len(found.versions):,} {'days' if found.of_days else 'commits'}"


def _table(found: MachineHistory) -> Panel:
    rows: list[DataRow] = [
        {
            "since": each.since.name,
            "day": each.since.day,
            "variant": str(each.case.variant),
            "setting": place(each.case),
            **change_fields(each.before_s, each.after_s),
        }
        for each in found.changes
    ]
    columns = (Shown("since", "since"), Shown("day", "date"), Shown("variant", "variant"), Shown("setting", "setting"))
    return changes_panel(rows, columns, "points")


def _lines(found: MachineHistory, results: MachineResults) -> Panel | None:
    tracks: dict[str, list[Track]] = {}
    for track in found.tracks:
        for key in results.settings_by_case.get(track.case, ()):
            tracks.setdefault(key, []).append(track)
    names = [version.name for version in found.versions[-_MOST_VERSIONS:]]
    rows: dict[str, list[DataRow]] = {}
    room = _MOST_ROWS
    for key in sorted(tracks, key=lambda key: key != results.first):
        own = [row for track in tracks[key] for row in _rows(track, found, set(names))]
        if len(own) > room:
            break
        rows[key], room = own, room - len(own)
    if not rows:
        return None
    rows = {key: rows[key] for key in results.labels if key in rows}
    what = "day" if found.of_days else "commit"
    text = (
        f"Each dot is a {what}: the median step over rounds, with its 95 % interval. Triangles mark the first {what} "
        "of a lasting change: up is slower, down is faster. "
        + (f"{len(tracks) - len(rows)} settings have no room. " if len(rows) < len(tracks) else "")
        + (f"The newest {_MOST_VERSIONS} are drawn." if len(found.versions) > _MOST_VERSIONS else "")
    ).strip()
    columns = (
        Shown("version", what),
        Shown("day", "date"),
        Shown("variant", "variant"),
        Shown("shown", "ms a step [95 % interval]"),
        Shown("rounds", "rounds"),
        Shown("change", "lasting change"),
    )
    title = f"Step time by {what}"
    spec = _spec(found, names, what)
    return Panel("history", title, text, columns, rows, spec, "setting", results.first, results.labels)


def _rows(track: Track, found: MachineHistory, names: set[str]) -> list[DataRow]:
    changes = {each.since.name: each for each in found.changes if each.case == track.case}
    rows: list[DataRow] = []
    for version, time, rounds in track.points:
        if version.name not in names:
            continue
        change = changes.get(version.name)
        rows.append(
            {
                "version": version.name,
                "day": version.day,
                "variant": str(track.case.variant),
                "ms": _digits(time.value),
                "low": _digits(time.value if time.low is None else time.low),
                "high": _digits(time.value if time.high is None else time.high),
                "shown": estimate(time, _MS),
                "rounds": rounds,
                "change": "" if change is None else f"{word_of(change.times)}, {growth_of(change.times)}",
                "kind": None if change is None else word_of(change.times),
            }
        )
    return rows


def _digits(time_s: float) -> float:
    return float(f"{time_s / _MS:.5g}")


def _spec(found: MachineHistory, names: Sequence[str], what: str) -> dict[str, object]:
    variants = sorted({track.case.variant for track in found.tracks}, key=lambda each: each.order)
    x = order_axis("version", names, f"{what}, in the order of time")
    colour = coloured("variant", variant_colours(variants))
    tip = tooltip(
        ("version", what),
        ("day", "date"),
        ("variant", "variant"),
        ("shown", "ms a step"),
        ("rounds", "rounds"),
        ("change", "lasting change"),
    )
    ends = {"y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}}
    intervals = {"mark": {"type": "rule", "strokeWidth": 1.5}, "encoding": {"x": x, **ends, "color": colour}}
    return line_chart(x, colour, tip, {"mark": {}, "field": "version"}, intervals)
