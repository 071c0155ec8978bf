"""The section of a history: what changed for long in words and as a table, and the chart of its lines."""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Any

from dpbench.report.headline import place
from dpbench.report.page.drawing import chart, layer, number_axis
from dpbench.report.page.history.gates import BASE, HEAD, gate_histories, short_commit
from dpbench.report.page.history.lines import FASTER, SLOWER, THRESHOLD, Change, History, Line
from dpbench.report.page.inputs import PageInputs
from dpbench.report.page.machines import MachineResults, machine_names
from dpbench.report.page.parts import ALL, Columns, DataRow, Panel, Section
from dpbench.report.page.theme import BAD, GOOD, MUTED, coloured, series, variant_colours
from dpbench.report.units import estimate, number
from dpbench.stats.lasting_steps import LEAST_POINTS, MOST_POINTS

_MS = 1e-3
_MOST_ANSWERS = 3
_MOST_CHANGES = 200
_MOST_ROWS = 12_000
_MOST_PLACES = 300
_MOST_MACHINES = 6
_MOST_NAMED = 5
_LABELS = 24
"""As many labels of gates have room above the chart."""
_HEIGHT = 260


def history_section(number: int, history: History, results: MachineResults) -> Section | None:
    """Return the section of a machine's records; None if no case was measured twice."""
    keys = {line.name: results.settings_by_case.get(line.case, ()) for line in history.lines if line.case is not None}
    rows, settings = _rows(history, keys, results.first)
    if not rows:
        return None
    rows = {key: rows[key] for key in results.labels if key in rows}
    what = history.what
    text = (
        f"Each dot is a {what}: the median step over rounds, with its 95 % interval. Triangles mark the first {what} "
        "of a lasting change: up is slower, down is faster. "
        + (f"{settings - len(rows)} settings have no room. " if len(rows) < settings else "")
        + (f"The newest {_MOST_PLACES} are drawn." if len(history.places) > _MOST_PLACES else "")
    ).strip()
    columns = {"place": what, "day": "date", "series": "variant", "shown": "ms a step [95 % interval]"}
    columns |= {"rounds": "rounds", "change": "lasting change"}
    variants = sorted({line.case.variant for line in history.lines if line.case}, key=lambda each: each.order)
    colour = coloured("series", variant_colours(variants))
    spec = _spec(history, colour, columns)
    lines = Panel(
        "history", f"Step time by {what}", text, columns, rows, spec, "setting", results.first, results.labels
    )
    count = f"{len(history.places):,} {what}s"
    names = {"since": "since", "day": "date", "variant": "variant", "setting": "setting"}
    answers = _answers(history, f"{_counted(len(history.lines), 'case')} over {count}", f"{what}s")
    panels = [*_changes_panel(history, names, "points"), lines]
    return Section(f"m{number}-history", f"What changed over {count}?", panels, answers)


def gate_sections(page_inputs: PageInputs) -> tuple[list[Section], list[str]]:
    """Return a section for each machine with gates, and notes on what has no room."""
    machines = gate_histories(page_inputs.gates, page_inputs.commit_dates)
    names = machine_names([machine.machine for machine in machines])
    shown = list(zip(names, machines, strict=True))[:_MOST_MACHINES]
    sections = [_gates(number, name, each) for number, (name, each) in enumerate(shown)]
    notes = [f"The gate's history is shown of {_MOST_MACHINES} of {len(machines)} machines."]
    return sections, notes if len(machines) > _MOST_MACHINES else []


def _gates(number: int, name: str, history: History) -> Section:
    newest = "the newest " if history.longest > MOST_POINTS else ""
    commits = f"{newest}{_counted(min(history.longest, MOST_POINTS), 'commit')}"
    answers = _answers(history, f"{_counted(len(history.lines), 'benchmark')} over {commits}", "commits")
    said = [_summary(history), *(answers if history.lines else ["No gate has times."])]
    names = {"since": "since", "day": "first measured", "benchmark": "benchmark"}
    panels = [*_changes_panel(history, names, "commits"), *_gate_lines(number, history)]
    return Section(f"gate{number}", f"How have the gate's step times changed on {name}?", panels, said)


def _summary(history: History) -> str:
    """Return how many gates there are, and which of them were slower."""
    first, last = history.places[0], history.places[-1]
    days = f"on {first.day}" if first.day == last.day else f"from {first.day} to {last.day}"
    slower = [gate for gate in history.places if gate.is_slower][::-1]
    named = ", ".join(f"{gate.name} on {gate.day}" for gate in slower[:_MOST_NAMED])
    more = f" and {len(slower) - _MOST_NAMED:,} earlier ones" if len(slower) > _MOST_NAMED else ""
    which = f"The verdict was slower in {len(slower):,}: {named}{more}." if slower else "The verdict was never slower."
    return f"{_counted(len(history.places), 'gate')} {days}. {which}"


def _gate_lines(number: int, history: History) -> Iterator[Panel]:
    labels = {f"b{index}": line.name for index, line in enumerate(history.lines)}  # a name may be empty
    changed = [each.line for each in history.changes or ()]
    order = sorted(labels, key=lambda key: changed.index(labels[key]) if labels[key] in changed else len(changed))
    by_line = {labels[key]: (key,) for key in order}
    rows, _ = _rows(history, by_line, "")
    if not rows:
        return
    text = (
        "Each dot is the median step over the rounds of one gate. A red ring marks a gate with the verdict slower; "
        "another benchmark or a counter may be the reason. A triangle marks the first gate that measured a lasting "
        f"change: up is slower, down is faster.{''.join(_left_out(history, len(rows)))}"
    )
    columns = {"place": "gate", "day": "date", "series": "side", "commit": "commit", "shown": "ms a step"}
    columns |= {"ratio": "head / base", "rounds": "rounds", "verdict": "verdict of the gate"}
    columns |= {"change": "lasting change"}
    first = next(iter(rows))
    ordered = {key: rows[key] for key in labels if key in rows}
    only = f" of {labels[first]}" if len(rows) == 1 else ""
    title = f"Step time{only} by gate: base and head"
    spec = _spec(history, coloured("series", [(BASE, MUTED), (HEAD, series(0))]), columns)
    choice = f"benchmark {number}"
    yield Panel("times", title, text, columns, ordered, spec, choice, first, labels, chosen="Benchmark")


def _left_out(history: History, drawn: int) -> Iterator[str]:
    if len(history.places) > _LABELS:
        yield " If a mark has no room for its commit, the table has it."
    if len(history.places) > _MOST_PLACES:
        yield f" The newest {_MOST_PLACES} gates are drawn."
    if drawn < len(history.lines):
        yield f" Left out: {_counted(len(history.lines) - drawn, 'benchmark')} without room or without a newer gate."
    if history.others:
        yield f" Left out: {_counted(history.others, 'pair')} of times of a benchmark's earlier cases."


def _answers(history: History, lines: str, what: str) -> list[str]:
    """Return the first lasting changes, or why there are none.

    `lines` says what was looked at, and `what` names the points of a line.
    """
    if history.changes is None:
        return ["Lasting changes are not marked, because asv is not installed: pip install 'torch-dpbench[suites]'"]
    if history.longest < LEAST_POINTS:
        return [f"There are too few {what} to find lasting changes: {history.longest}, and {LEAST_POINTS} are needed."]
    if not history.changes:
        return [f"No lasting change of {100 * THRESHOLD:.0f} % or more in {lines}."]
    more = len(history.changes) - _MOST_ANSWERS
    of_name = {line.name: line for line in history.lines}
    said = [_sentence(each, of_name[each.line]) for each in history.changes[:_MOST_ANSWERS]]
    return [*said, f"{more:,} more lasting changes are in the table."] if more > 0 else said


def _sentence(change: Change, line: Line) -> str:
    """Return one change in words."""
    times = f"{number(change.before_s / _MS)} to {number(change.after_s / _MS)} ms, {change.growth}"
    if line.case is None:
        since = f"{short_commit(change.commit)}, first measured on {change.place.day}"
        return f"{line.name} is {change.word} since {since}: {times}."
    since = f"{change.place.name} of {change.place.day}"
    return f"{line.case.variant} is {change.word} since {since}: {times}, {place(line.case)}."


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _changes_panel(history: History, names: Columns, points: str) -> list[Panel]:
    """Return the table of lasting changes, largest first. `names` name what changed, `points` what was looked at."""
    cells = {line.name: line.cells for line in history.lines}
    rows: list[DataRow] = [
        {
            "since": short_commit(each.commit) if history.what == "gate" else each.place.name,
            "day": each.place.day,
            **cells[each.line],
            "before": number(each.before_s / _MS),
            "after": number(each.after_s / _MS),
            "change": each.growth,
        }
        for each in history.changes or ()
    ]
    more = f" The first {_MOST_CHANGES} of {len(rows):,} are shown." if len(rows) > _MOST_CHANGES else ""
    text = (
        f"Steps of {100 * THRESHOLD:.0f} % or more that no later step undoes, by the gate's rule. The newest "
        f"{MOST_POINTS} {points} count.{more}"
    )
    columns = {**names, "before": "before, ms", "after": "after, ms", "change": "change"}
    panel = Panel("changes", "Lasting changes", text, columns, {ALL: rows[:_MOST_CHANGES]})
    return [panel] if rows else []


def _rows(history: History, keys: Mapping[str, Sequence[str]], first: str) -> tuple[dict[str, list[DataRow]], int]:
    """Return the rows of each choice of lines, as many as have room, and the number of choices.

    `keys` has the choices that show a line, by its name. The choice `first` has room before the others.
    """
    of_name = {line.name: line for line in history.lines}
    lines: dict[str, list[Line]] = {}
    for name, own_keys in keys.items():
        for key in own_keys:
            lines.setdefault(key, []).append(of_name[name])
    rows: dict[str, list[DataRow]] = {}
    room = _MOST_ROWS
    for key in sorted(lines, key=lambda key: key != first):
        own = [row for line in lines[key] for row in _line_rows(line, history)]
        if own and len(own) <= room:
            rows[key], room = own, room - len(own)
    return rows, len(lines)


def _line_rows(line: Line, history: History) -> Iterator[DataRow]:
    """Yield a row for each drawn point. A mark has a label if the one before it is not too near."""
    drawn = {at.name for at in history.places[-_MOST_PLACES:]}
    changes = {each.place.name: each for each in history.changes or () if each.line == line.name}
    points = [point for point in line.points if point.place.name in drawn]
    order = {at: index for index, at in enumerate(dict.fromkeys(point.place.name for point in points))}
    apart, next_label = ceil(len(order) / _LABELS), 0
    for point in points:
        at, change = point.place, changes.get(point.place.name)
        is_slower = at.is_slower and point.series == HEAD
        own = change if change is not None and change.commit == point.commit else None
        label = None
        if (change is not None or is_slower) and point.series != BASE and order[at.name] >= next_label:
            next_label = order[at.name] + apart
            label = at.name if is_slower or change is None or history.what != "gate" else short_commit(change.commit)
        time = point.time
        ends = (time.value if end is None else end for end in (time.value, time.low, time.high))
        yield {
            "place": at.name,
            "day": at.day,
            "series": point.series,
            "commit": short_commit(point.commit),
            **dict(zip(("ms", "low", "high"), (float(f"{end / _MS:.5g}") for end in ends), strict=True)),
            "shown": estimate(time, _MS),
            "rounds": point.rounds,
            "change": "" if own is None else f"{own.word}, {own.growth}",
            "kind": None if own is None else own.word,
            "is_slower": is_slower,
            "label": f"{label} {at.day}" if label and history.what == "gate" else label,
            **point.cells,
        }


def _spec(history: History, colour: dict[str, Any], columns: Columns) -> dict[str, Any]:
    """Return lines of step times; a ring at gates that were slower, a triangle and a label at lasting changes."""
    x = {
        "field": "place",
        "type": "ordinal",
        "sort": None,
        "title": f"{'gates by head' if history.what == 'gate' else history.what}, in the order of time",
        "scale": {"domain": [at.name for at in history.places[-_MOST_PLACES:]]},
        "axis": {"labelAngle": -40, "labelOverlap": "greedy", "grid": False, "labelLimit": 110},
    }
    y = number_axis("ms", "ms a step", zero=False)
    shape = {"domain": [SLOWER, FASTER], "range": ["triangle-up", "triangle-down"]}
    kind = {"condition": {"test": f"datum.kind === '{SLOWER}'", "value": BAD}, "value": GOOD}
    text = {"dy": -6, "fontSize": 11, "color": MUTED, "baseline": "bottom", "angle": -40, "align": "left", "dx": 3}
    ring = {"shape": "circle", "filled": False, "size": 190, "strokeWidth": 2, "color": BAD}
    return chart(
        layer("rule", {"strokeDash": [3, 4], "color": MUTED}, x=x, where="datum.label"),
        layer("text", text, x=x, y={"value": 0}, text="label", where="datum.label"),
        layer("line", {"strokeWidth": 2}, x=x, y=y, color=colour),
        layer("rule", {"strokeWidth": 1.5}, x=x, y="low", y2="high", color=colour, where="datum.low < datum.high"),
        layer("point", ring, x=x, y="ms", columns=columns, where="datum.is_slower"),
        layer("point", {"size": 45}, x=x, y=y, color=colour, columns=columns),
        layer(
            "point",
            {"size": 190, "filled": True, "yOffset": -16},
            x=x,
            y=y,
            shape={"field": "kind", "type": "nominal", "legend": None, "scale": shape},
            color=kind,
            columns=columns,
            where="datum.kind",
        ),
        height=_HEIGHT,
    )
