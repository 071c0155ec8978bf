"""The history of gates: each benchmark's times of base and head over the first base, gate by gate. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from dpbench.gate.history import HistoryLine, machine_of
from dpbench.gate.judgement import Verdict
from dpbench.records.record import Environment
from dpbench.report.page.history.ratios import counted, panel_over_time, point, seconds_of
from dpbench.report.page.inputs import PageInputs
from dpbench.report.page.machines import machine_names
from dpbench.report.page.parts import DataRow, Panel, Section
from dpbench.report.page.theme import MUTED, series
from dpbench.stats.estimate import Estimate
from dpbench.text.outside import one_line

_BASE, _HEAD = "base", "head"
_SHORT = 10
_MOST_MACHINES, _MOST_NAMED = 6, 5
_TEXT = (
    "Each dot is a side's median step in one gate, over the first gate's base. Where base moves with head, the machine "
    "has changed or an earlier commit. A red ring marks a gate with the verdict slower; another benchmark or a counter "
    "may be the reason."
)


def gate_sections(page_inputs: PageInputs) -> tuple[list[Section], list[str]]:
    """Return a section for each machine with gates, and notes on what has no room. A line that is twice counts once."""
    machines: dict[Environment, list[HistoryLine]] = {}
    for line in sorted(dict.fromkeys(page_inputs.gates), key=lambda each: seconds_of(each.started_at)):
        machines.setdefault(machine_of(line.environment), []).append(line)
    names = machine_names(list(machines))
    named = list(zip(names, machines.values(), strict=True))[:_MOST_MACHINES]
    sections = [_section(number, name, lines) for number, (name, lines) in enumerate(named)]
    notes = [f"The gate's history is shown of {_MOST_MACHINES} of {len(machines)} machines."]
    return sections, notes if len(machines) > _MOST_MACHINES else []


def _section(number: int, name: str, lines: Sequence[HistoryLine]) -> Section:
    gates = dict(zip(_names(lines), lines, strict=True))
    rows: dict[tuple[str, str], list[DataRow]] = {}
    first_s: dict[tuple[str, str], float] = {}
    for gate, line in gates.items():
        for times in line.benchmarks:
            key = (times.name, times.case)
            first_s.setdefault(key, times.base_step_s)
            for side, commit, step_s in (
                (_BASE, line.base_commit, times.base_step_s),
                (_HEAD, line.head_commit, times.head_step_s),
            ):
                ratio = Estimate(step_s / first_s[key], None, None)
                cells = {"day": _day(line), "commit": _commit(commit), "verdict": str(line.verdict)}
                cells["head_over_base"] = f"{times.ratio:.3f}"
                is_slower = side == _HEAD and line.verdict is Verdict.SLOWER
                own = point(gate, side, ratio, step_s, times.rounds, **cells, is_slower=is_slower)
                rows.setdefault(key, []).append(own)
    panel = panel_over_time(
        _panel(number, rows),
        list(gates),
        [(_BASE, MUTED), (_HEAD, series(0))],
        {"day": "date", "commit": "commit", "head_over_base": "head / base", "verdict": "verdict of the gate"},
        "gate",
    )
    answers = [_summary(gates), *([] if rows else ["No gate has times."])]
    title = f"How have the gate's step times changed on {name}?"
    return Section(f"gate{number}", title, [] if panel is None else [panel], answers)


def _panel(number: int, rows: Mapping[tuple[str, str], Sequence[DataRow]]) -> Panel:
    """Return the panel without its chart. The benchmark that changed most is shown first.

    A benchmark's name that the settings gave to another case has a line for each case.
    """
    names = [name for name, _ in rows]
    labels = {  # a name may be empty, so it is no key
        f"b{place}": name if names.count(name) == 1 else f"{name}, {case}" for place, (name, case) in enumerate(rows)
    }
    own = dict(zip(labels, rows.values(), strict=True))
    first = max(own, key=lambda key: abs(float(str(own[key][-1]["ratio"])) - 1), default="")
    only = f" of {names[0]}" if len(rows) == 1 else ""
    title = f"Step time{only} by gate: base and head"
    return Panel("ratios", title, _TEXT, {}, own, None, f"benchmark {number}", first, labels, chosen="Benchmark")


def _names(lines: Sequence[HistoryLine]) -> Iterator[str]:
    """Yield a name for each gate: its head's commit. The second gate of a commit ends in ``(2)``."""
    seen: dict[str, int] = {}
    for line in lines:
        short = _commit(line.head_commit)
        seen[short] = seen.get(short, 0) + 1
        yield short if seen[short] == 1 else f"{short} ({seen[short]})"


def _summary(gates: Mapping[str, HistoryLine]) -> str:
    """Return how many gates there are, and which of them were slower."""
    first, *_, last = [*gates.values(), *gates.values()]
    days = f"on {_day(first)}" if _day(first) == _day(last) else f"from {_day(first)} to {_day(last)}"
    slower = [f"{name} on {_day(line)}" for name, line in gates.items() if line.verdict is Verdict.SLOWER][::-1]
    more = f" and {len(slower) - _MOST_NAMED:,} earlier ones" if len(slower) > _MOST_NAMED else ""
    named = ", ".join(slower[:_MOST_NAMED])
    which = f"The verdict was slower in {len(slower):,}: {named}{more}." if slower else "The verdict was never slower."
    return f"{counted(len(gates), 'gate')} {days}. {which}"


def _commit(commit: str | None) -> str:
    return "worktree" if commit is None else one_line(commit)[:_SHORT]


def _day(line: HistoryLine) -> str:
    return datetime.fromisoformat(line.started_at).date().isoformat()
