"""The section of one machine's gates: base and head of each gate over time, and the table of lasting changes."""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil

from dpbench.gate.drift import MOST_POINTS
from dpbench.gate.history import StepTimes
from dpbench.report.page.history.changes import answers_of, change_fields, changes_panel, growth_of, word_of
from dpbench.report.page.history.gates import Gate, GateChange, GateHistory, gate_histories, short_commit
from dpbench.report.page.history.line_chart import line_chart, order_axis
from dpbench.report.page.inputs import PageInputs
from dpbench.report.page.machines import machine_names
from dpbench.report.page.parts import DataRow, Panel, Section, Shown
from dpbench.report.page.theme import BAD, MUTED, coloured, series, tooltip
from dpbench.report.units import number

_MS = 1e-3
_MOST_MACHINES = 6
_MOST_GATES = 300
_MOST_ROWS = 12_000
_MOST_NAMED = 5
_LABELS = 24
"""As many labels of gates have room above the chart."""
_BASE, _HEAD = "base", "head"


def gate_sections(found: PageInputs) -> tuple[list[Section], list[str]]:
    """Return a section for each machine with gates, and notes on what has no room."""
    machines = gate_histories(found.gates, found.commit_dates)
    names = machine_names([each.machine for each in machines])
    shown = list(zip(names, machines, strict=True))[:_MOST_MACHINES]
    sections = [_section(place, name, each) for place, (name, each) in enumerate(shown)]
    notes = [f"The gate's history is shown of {_MOST_MACHINES} of {len(machines)} machines."]
    return sections, notes if len(machines) > _MOST_MACHINES else []


def _section(place: int, name: str, found: GateHistory) -> Section:
    panels = [*([_table(found)] if found.changes else []), *_lines(place, found)]
    title = f"How have the gate's step times changed on {name}?"
    return Section(f"gate{place}", title, panels, [_summary(found), *_answers(found)])


def _summary(found: GateHistory) -> str:
    """Return how many gates there are, and which of them were slower."""
    first, last = found.gates[0], found.gates[-1]
    days = f"on {first.day}" if first.day == last.day else f"from {first.day} to {last.day}"
    slower = [gate for gate in found.gates if gate.is_slower][::-1]
    named = ", ".join(f"{gate.name} on {gate.day}" for gate in slower[:_MOST_NAMED])
    more = f" and {len(slower) - _MOST_NAMED:,} earlier ones" if len(slower) > _MOST_NAMED else ""
    which = f"The verdict was slower in {len(slower):,}: {named}{more}." if slower else "The verdict was never slower."
    return f"{_counted(len(found.gates), 'gate')} {days}. {which}"


def _answers(found: GateHistory) -> list[str]:
    if not found.benchmarks:
        return ["No gate has times."]
    newest = "the newest " if found.longest > MOST_POINTS else ""
    commits = f"{newest}{_counted(min(found.longest, MOST_POINTS), 'commit')}"
    lines = f"{_counted(len(found.benchmarks), 'benchmark')} over {commits}"
    said = [
        f"{each.benchmark} is {word_of(each.times)} since {short_commit(each.commit)}, first measured on "
        f"{each.gate.day}: {number(each.before_s / _MS)} to {number(each.after_s / _MS)} ms, {growth_of(each.times)}."
        for each in found.changes
    ]
    return answers_of(said, lines, "commits", found.longest, can_detect=found.can_detect)


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _table(found: GateHistory) -> Panel:
    rows: list[DataRow] = [
        {
            "since": short_commit(each.commit),
            "day": each.gate.day,
            "benchmark": each.benchmark,
            **change_fields(each.before_s, each.after_s),
        }
        for each in found.changes
    ]
    columns = (Shown("since", "since"), Shown("day", "first measured"), Shown("benchmark", "benchmark"))
    return changes_panel(rows, columns, "commits")


def _lines(place: int, found: GateHistory) -> Iterator[Panel]:
    rows: dict[str, list[DataRow]] = {}
    room = _MOST_ROWS
    newest = [gate.name for gate in found.gates[-_MOST_GATES:]]
    labels = {f"b{number}": name for number, name in enumerate(found.benchmarks)}  # a name may be empty
    changed = list(dict.fromkeys(each.benchmark for each in found.changes))
    ranks = {name: rank for rank, name in enumerate(changed)}
    drawn = set(newest)
    for key in sorted(labels, key=lambda key: ranks.get(labels[key], len(ranks))):
        points = [point for point in found.benchmarks[labels[key]] if point[0].name in drawn]
        own = list(_rows(points, _changes_of(found, labels[key])))
        if own and len(own) <= room:
            rows[key], room = own, room - len(own)
    if not rows:
        return
    text = (
        "Each dot is the median step over the rounds of one gate. A red ring marks a gate with the verdict slower; "
        "another benchmark or a counter may be the reason. A triangle marks the first gate that measured a lasting "
        f"change: up is slower, down is faster.{''.join(_left_out(found, len(rows)))}"
    )
    columns = (
        Shown("gate", "gate"),
        Shown("day", "date"),
        Shown("side", "side"),
        Shown("commit", "commit"),
        Shown("shown", "ms a step"),
        Shown("ratio", "head / base"),
        Shown("rounds", "rounds"),
        Shown("verdict", "verdict of the gate"),
        Shown("change", "lasting change"),
    )
    first = next(iter(rows))
    ordered = {key: rows[key] for key in labels if key in rows}
    only = f" of {labels[first]}" if len(rows) == 1 else ""
    title = f"Step time{only} by gate: base and head"
    yield Panel(
        "times", title, text, columns, ordered, _spec(newest), f"benchmark {place}", first, labels, chosen="Benchmark"
    )


def _left_out(found: GateHistory, drawn: int) -> Iterator[str]:
    if len(found.gates) > _LABELS:
        yield " If a mark has no room for its commit, the table has it."
    if len(found.gates) > _MOST_GATES:
        yield f" The newest {_MOST_GATES} gates are drawn."
    if drawn < len(found.benchmarks):
        yield f" Left out: {_counted(len(found.benchmarks) - drawn, 'benchmark')} without room or without a newer gate."
    if found.others:
        yield f" Left out: {_counted(found.others, 'pair')} of times of a benchmark's earlier cases."


def _changes_of(found: GateHistory, benchmark: str) -> dict[str, GateChange]:
    return {each.gate.name: each for each in found.changes if each.benchmark == benchmark}


def _rows(points: Sequence[tuple[Gate, StepTimes]], changes: Mapping[str, GateChange]) -> Iterator[DataRow]:
    """Yield base's and head's row of each gate. What is marked is marked once: at head, or where the change began."""
    apart = ceil(len(points) / _LABELS)
    next_label = 0
    for place, (gate, times) in enumerate(points):
        change = changes.get(gate.name)
        has_label = (gate.is_slower or change is not None) and place >= next_label
        next_label = place + apart if has_label else next_label
        label = gate.name if gate.is_slower or change is None else short_commit(change.commit)
        for side, commit, time_s in (
            (_BASE, gate.line.base_commit, times.base_step_s),
            (_HEAD, gate.line.head_commit, times.head_step_s),
        ):
            is_first = change is not None and change.commit == commit
            is_head = side == _HEAD
            yield {
                "gate": gate.name,
                "day": gate.day,
                "side": side,
                "commit": short_commit(commit),
                "ms": float(f"{time_s / _MS:.5g}"),
                "shown": number(time_s / _MS),
                "ratio": f"{times.ratio:.3f}" if is_head else "",
                "rounds": times.rounds,
                "verdict": str(gate.line.verdict),
                "change": f"{word_of(change.times)}, {growth_of(change.times)}" if change and is_first else "",
                "kind": word_of(change.times) if change and is_first else None,
                "is_slower": is_head and gate.is_slower,
                "label": f"{label} {gate.day}" if is_head and has_label else None,
            }


def _spec(names: Sequence[str]) -> dict[str, object]:
    x = order_axis("gate", names, "gates by head, in the order of time")
    colour = coloured("side", [(_BASE, MUTED), (_HEAD, series(0))])
    tip = tooltip(
        ("gate", "gate"),
        ("day", "date"),
        ("side", "side"),
        ("commit", "commit"),
        ("shown", "ms a step"),
        ("ratio", "head / base"),
        ("rounds", "rounds"),
        ("verdict", "verdict"),
        ("change", "lasting change"),
    )
    ring = {
        "mark": {"type": "point", "shape": "circle", "filled": False, "size": 190, "strokeWidth": 2, "color": BAD},
        "transform": [{"filter": "datum.is_slower"}],
        "encoding": {"x": x, "y": {"field": "ms", "type": "quantitative"}, "tooltip": tip},
    }
    label = {"mark": {"angle": -40, "align": "left", "dx": 3}, "field": "label"}
    return line_chart(x, colour, tip, label, ring, marked="datum.label")
