"""Results over time: one chart of ratios to the beginning, over commits, days or gates. Pure.

Of records, a line for each case: its step time over its first one. Of gates, a line for each side of a benchmark: its
time over the first base.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from math import log

from dpbench.analysis.answer import place
from dpbench.analysis.summary import Summary, summarise_cases
from dpbench.cases.case import Case
from dpbench.errors import WrongInputError
from dpbench.gate.history import HistoryLine
from dpbench.judge.decision import Verdict
from dpbench.judge.estimate import Estimate
from dpbench.records.record import Environment, Record, differences
from dpbench.report.page.drawing import MUTED, axis_of, coloured, drawn, series, variant_colours
from dpbench.report.page.inputs import PageInputs
from dpbench.report.page.machines import MachineResults, machine_names
from dpbench.report.page.parts import ALL, Cell, Columns, DataRow, Panel, Section, cells_of, headers_of
from dpbench.report.table import Column, of
from dpbench.text.outside import one_line, quoted
from dpbench.text.quantities import number, plural
from dpbench.text.validated import day_of

MS = 1e-3
_MOST_PLACES = 300
_MOST_ROWS = 12_000


def point(place: str, series: str, ratio: Estimate, step_s: float, rounds: int, **cells: Cell) -> DataRow:
    """A dot: the ratio of a step time at a place in time. `series` is its line's name."""
    low, high = ratio.ends
    return {
        "place": place,
        "series": series,
        **{name: float(f"{end:.5g}") for name, end in (("ratio", ratio.value), ("low", low), ("high", high))},
        "shown": ratio.text(),
        "ms": number(step_s / MS),
        "rounds": rounds,
        "ideal": 1.0,
        "is_slower": False,
        **cells,
    }


def panel_over_time(
    panel: Panel, places: Sequence[str], colours: Sequence[tuple[str, str]], more: Columns, what: str
) -> Panel | None:
    """The panel with its chart; None without rows.

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
    x = {
        "field": "place",
        "type": "ordinal",
        "sort": None,
        "title": f"{what}s, in the order of time",
        "scale": {"domain": newest},
        "axis": {"labelAngle": -40, "labelOverlap": "greedy", "grid": False, "labelLimit": 110},
    }
    value = axis_of("ratio", "time over the first", zero=False, nice=True)
    spec = drawn("lines", columns, x=x, value=value, colour=coloured("series", colours))
    return replace(panel, text=text, columns=columns, rows=rows, spec=spec)


def _with_room(panel: Panel, places: Collection[str]) -> dict[str, Sequence[DataRow]]:
    """The rows at these places, of as many choices as have room. The panel's first choice goes before others."""
    kept: dict[str, Sequence[DataRow]] = {}
    room = _MOST_ROWS
    for key in sorted(panel.rows, key=lambda key: key != panel.first):
        placed_rows = [row for row in panel.rows[key] if row["place"] in places]
        if placed_rows and len(placed_rows) <= room:
            kept[key], room = placed_rows, room - len(placed_rows)
    return {key: kept[key] for key in panel.labels if key in kept}


def seconds_of(moment: str) -> float:
    """Since 1970. A moment without a time zone is in UTC."""
    parsed = datetime.fromisoformat(moment)
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


_SHORT = 10
_MOST_LISTED = 200
_MOST_NAMED = 8
_Times = Mapping[Case, Summary]


@dataclass(frozen=True)
class History:
    """One machine's times by commit or day (`what`), oldest first."""

    what: str
    times: Mapping[str, _Times]

    @property
    def newest(self) -> str:
        return list(self.times)[-1]


def histories(
    machines: Sequence[MachineResults], commit_dates: Mapping[str, float], *, with_days: bool
) -> dict[Environment, History]:
    """Of each machine that was measured at several commits.

    `with_days` adds machines with one commit and several days. Commits are in the order of `commit_dates` if all are
    there, else in that of their first records.
    """
    groups: dict[Environment, dict[Environment, Sequence[Record]]] = {}
    for results in machines:
        if results.environment is not None:
            groups.setdefault(results.environment.machine(), {})[results.environment] = results.records
    made = {}
    for machine, records_by_version in groups.items():
        dates = commit_dates if all(version.commit in commit_dates for version in records_by_version) else {}
        commits, days = dict[str, list[Record]](), dict[str, list[Record]]()
        for environment in sorted(
            records_by_version, key=lambda version: _order(version, records_by_version[version], dates)
        ):
            commits.setdefault(version_name(environment), []).extend(records_by_version[environment])
        for record in chain.from_iterable(commits.values()):
            days.setdefault(_day(record), []).append(record)
        if len(commits) > 1:
            made[machine] = History("commit", {name: _times(records) for name, records in commits.items()})
        elif with_days and len(days) > 1:
            made[machine] = History("day", {name: _times(records) for name, records in sorted(days.items())})
    return made


def newest(machines: Sequence[MachineResults], past: Mapping[Environment, History]) -> list[MachineResults]:
    """The machines without those that are an older commit in one of the histories."""
    last = {machine: history.newest for machine, history in past.items() if history.what == "commit"}
    return [
        results
        for results in machines
        if results.environment is None
        or last.get(results.environment.machine()) in (None, version_name(results.environment))
    ]


def history_section(number: int, history: History, results: MachineResults) -> Section | None:
    """What changed from the oldest to the newest place, and the lines of all cases."""
    names = list(history.times)
    before, after = history.times[names[0]], history.times[names[-1]]
    both = [(before[case], after[case]) for case in before if case in after]
    effects = [_Effect(old, new, new.ratio_to(old)) for old, new in both]
    effects.sort(key=lambda effect: (effect.ratio.verdict == "undecided", -abs(log(effect.ratio.value))))
    variants = {case.variant for times in history.times.values() for case in times}
    colours = variant_colours(sorted(variants, key=lambda variant: variant.order))
    lines = panel_over_time(_lines(history, results), names, colours, {}, history.what)
    panels = [panel for panel in (_changes(effects, names), lines) if panel is not None]
    answers = [_answer(effects, names, len(before.keys() ^ after.keys()))]
    title = f"What changed over {plural(len(names), history.what)}?"
    return Section(f"m{number}-history", title, panels, answers) if panels else None


def check_history(page_inputs: PageInputs) -> None:
    """Raise WrongInputError if all records are of one commit and one day. Gates alone have a history."""
    if page_inputs.gates and not page_inputs.records:
        return
    versions = {version_name(record.environment) for record in page_inputs.records if record.environment}
    days = {_day(record) for record in page_inputs.records}
    if len(versions) < 2 and len(days) < 2:
        of = f"{', '.join(versions)} on {', '.join(days)}" if days else "none"
        raise WrongInputError(f"--history: the records are of {of}; allowed: records of several commits or days")


def version_name(environment: Environment) -> str:
    """The commit's first digits, and whether its tree was changed."""
    if environment.commit is None:
        return f"no commit, dpbench {environment.dpbench}"
    return environment.commit[:_SHORT] + (" changed" if environment.dirty else "")


def _order(environment: Environment, records: Sequence[Record], dates: Mapping[str, float]) -> float:
    """The commit's date, or else that of its first record. A changed tree comes after its commit."""
    if environment.commit is None or not dates:
        return min(seconds_of(record.started_at) for record in records)
    return dates[environment.commit] + (0.5 if environment.dirty else 0.0)


def _day(of: Record | HistoryLine) -> str:
    return day_of(seconds_of(of.started_at))


def _times(records: Sequence[Record]) -> _Times:
    """Each case that has times."""
    return {case: summary for case, summary in summarise_cases(records).items() if summary.step_times_s}


@dataclass(frozen=True)
class _Effect:
    """A case at the oldest and at the newest place."""

    before: Summary
    after: Summary
    ratio: Estimate

    @property
    def verdict(self) -> str:
        return "not decided" if self.ratio.verdict == "undecided" else str(self.ratio.verdict)


def _answer(effects: Sequence[_Effect], names: Sequence[str], unmatched: int) -> str:
    text = f"From {names[0]} to {names[-1]}: of {plural(len(effects), 'case')}"
    for verdict in ("slower", "faster"):
        growths = [f"{100 * (effect.ratio.value - 1):+.1f} %" for effect in effects if effect.ratio.verdict == verdict]
        text += f", {len(growths):,} surely {verdict}" + (f" (by up to {growths[0]})" if growths else "")
    return f"{text}. {plural(unmatched, 'case')} without times at one of them." if unmatched else f"{text}."


def _changes(effects: Sequence[_Effect], names: Sequence[str]) -> Panel | None:
    """The largest sure change first; None without cases."""
    columns = (
        Column("variant", of("before.case.variant"), key="variant"),
        Column("setting", lambda effect: place(effect.before.case), key="setting"),
        Column("time after over before [95 % interval]", of("ratio"), Estimate.text, key="shown"),
        Column("change", of("verdict"), key="verdict"),
        Column(f"{names[0]}, ms", of("before.time_s"), number, key="before", unit=MS),
        Column(f"{names[-1]}, ms", of("after.time_s"), number, key="after", unit=MS),
        Column("rounds", lambda effect: f"{effect.before.rounds_ok}, {effect.after.rounds_ok}", key="rounds"),
    )
    rows: list[DataRow] = [cells_of(columns, effect) for effect in effects[:_MOST_LISTED]]
    text = (
        "The largest sure change first: its 95 % interval does not contain 1. One case in twenty looks changed by "
        "chance, and machines drift between runs: dpbench gate measures two commits side by side to confirm a change."
    )
    if len(effects) > _MOST_LISTED:
        text += f" The first {_MOST_LISTED} of {len(effects):,} are shown."
    title = "The newest time over the oldest"
    return Panel("changes", title, text, headers_of(columns), {ALL: rows}) if rows else None


def _lines(history: History, results: MachineResults) -> Panel:
    """All cases that were measured twice, without the chart."""
    rows: dict[str, list[DataRow]] = {}
    for case in dict.fromkeys(case for times in history.times.values() for case in times):
        times_by_name = {name: times[case] for name, times in history.times.items() if case in times}
        if len(times_by_name) < 2:
            continue
        first = next(iter(times_by_name.values()))
        for name, summary in times_by_name.items():
            dot = point(name, str(case.variant), summary.ratio_to(first), summary.time_s, summary.rounds_ok)
            for key in results.settings_by_case.get(case, ()):
                rows.setdefault(key, []).append(dot)
    text = f"Each dot is a case at one {history.what}, with its 95 % interval: the median step over that of its first."
    title = f"Step time by {history.what}, over the first"
    return Panel("ratios", title, text, {}, rows, None, "setting", results.first, results.labels)


def of_two_commits(page_inputs: PageInputs, before: str, after: str) -> PageInputs:
    """The records of two commits, given by their first digits, in this order.

    Records of a changed working tree are of no commit. Raise WrongInputError.
    """
    clean: dict[str, list[Record]] = {}
    for record in page_inputs.records:
        if record.environment is not None and record.environment.commit and not record.environment.dirty:
            clean.setdefault(record.environment.commit, []).append(record)
    first, last = _full(before, list(clean)), _full(after, list(clean))
    if first == last:
        raise WrongInputError(f"--commits: {quoted(before)} and {quoted(after)} are one commit; allowed: two")
    machines = [
        {record.environment.machine() for record in clean[name] if record.environment} for name in (first, last)
    ]
    if not machines[0] & machines[1]:
        unlike = ", ".join(differences([*machines[0], *machines[1]]))
        raise WrongInputError(
            f"--commits: no machine has records of both, which differ in {unlike}; allowed: one machine"
        )
    return replace(page_inputs, records=[*clean[first], *clean[last]], commit_dates={first: 0.0, last: 1.0})


def _full(asked: str, commits: Sequence[str]) -> str:
    """The only known commit that begins with `asked`."""
    matches = [commit for commit in commits if asked and commit.startswith(asked.lower())]
    if len(matches) == 1:
        return matches[0]
    named = ", ".join(commit[:_SHORT] for commit in commits[:_MOST_NAMED]) or "none, the records have no clean commit"
    more = f" and {len(commits) - _MOST_NAMED} more" if len(commits) > _MOST_NAMED else ""
    is_what = f"begins {len(matches)} commits" if matches else "is no clean commit of the records"
    raise WrongInputError(f"--commits: {quoted(asked)} {is_what}; allowed: {named}{more}")


_BASE = "base"
_HEAD = "head"
_MOST_MACHINES = 6
_MOST_BENCHMARKS = 5
_TEXT = (
    "Each dot is a side's median step in one gate, over the first gate's base. Where base moves with head, the machine "
    "has changed or an earlier commit. A red ring marks a gate with the verdict slower; another benchmark or a counter "
    "may be the reason."
)


def gate_sections(page_inputs: PageInputs) -> tuple[list[Section], list[str]]:
    """A section for each machine with gates, and notes on what has no room. A line that is twice counts once."""
    machines: dict[Environment, list[HistoryLine]] = {}
    for line in sorted(dict.fromkeys(page_inputs.gates), key=lambda line: seconds_of(line.started_at)):
        machines.setdefault(line.environment.machine(), []).append(line)
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
                row = point(gate, side, ratio, step_s, times.rounds, **cells, is_slower=is_slower)
                rows.setdefault(key, []).append(row)
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
    """Without the chart. The benchmark that changed most is shown first.

    A benchmark's name that the settings gave to another case has a line for each case.
    """
    names = [name for name, _ in rows]
    labels = {  # a name may be empty, so it is no key
        f"b{place}": name if names.count(name) == 1 else f"{name}, {case}" for place, (name, case) in enumerate(rows)
    }
    rows_by_label = dict(zip(labels, rows.values(), strict=True))
    first = max(rows_by_label, key=lambda key: abs(float(str(rows_by_label[key][-1]["ratio"])) - 1), default="")
    only = f" of {names[0]}" if len(rows) == 1 else ""
    title = f"Step time{only} by gate: base and head"
    return Panel(
        "ratios", title, _TEXT, {}, rows_by_label, None, f"benchmark {number}", first, labels, chosen="Benchmark"
    )


def _names(lines: Sequence[HistoryLine]) -> Iterator[str]:
    """A gate's name is its head's commit. The second gate of a commit ends in ``(2)``."""
    seen: dict[str, int] = {}
    for line in lines:
        short = _commit(line.head_commit)
        seen[short] = seen.get(short, 0) + 1
        yield short if seen[short] == 1 else f"{short} ({seen[short]})"


def _summary(gates: Mapping[str, HistoryLine]) -> str:
    first, *_, last = [*gates.values(), *gates.values()]
    days = f"on {_day(first)}" if _day(first) == _day(last) else f"from {_day(first)} to {_day(last)}"
    slower = [f"{name} on {_day(line)}" for name, line in gates.items() if line.verdict is Verdict.SLOWER][::-1]
    more = f" and {len(slower) - _MOST_BENCHMARKS:,} earlier ones" if len(slower) > _MOST_BENCHMARKS else ""
    named = ", ".join(slower[:_MOST_BENCHMARKS])
    which = f"The verdict was slower in {len(slower):,}: {named}{more}." if slower else "The verdict was never slower."
    return f"{plural(len(gates), 'gate')} {days}. {which}"


def _commit(commit: str | None) -> str:
    return "worktree" if commit is None else one_line(commit)[:_SHORT]
