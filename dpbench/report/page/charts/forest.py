"""Each variant's time as a multiple of another's, with its interval: the reference's, and the fastest scheme's."""

from collections.abc import Sequence

from dpbench.report.page.charts.interval_rows import cut_note, interval_rows, ratio_fields
from dpbench.report.page.machines import MachineResults
from dpbench.report.page.parts import DataRow, Panel, Shown
from dpbench.report.page.theme import coloured, variant_colours
from dpbench.report.units import estimate
from dpbench.results.compare import Comparison
from dpbench.results.summary import Summary
from dpbench.results.winner import winner_of
from dpbench.stats.rounds import Estimate, ratio_of_rounds

_MS = 1e-3


def ratios(found: MachineResults) -> Panel | None:
    """Return the times over the reference's; None if no variant has a ratio."""
    rows = {each.setting.setting: _to_reference(each) for each in found.shown if each.reference is not None}
    references = " or ".join(sorted({str(each.reference) for each in found.shown if each.reference is not None}))
    text = (
        f"Each dot is a variant's time for a step over the time of {references}. The line is its 95 % interval. "
        "Left of 1 is faster. A variant whose line reaches 1 may be as fast."
    )
    return _panel(found, "ratios", references, text, rows)


def ratios_to_fastest(found: MachineResults) -> Panel | None:
    """Return the times over the fastest scheme's, with one device among them; None if there is one scheme."""
    rows = {each.setting.setting: own for each in found.shown if len(own := _to_fastest(each)) > 1}
    text = (
        "The same times over those of the scheme with the shortest median, round by round. It answers whether that "
        "scheme is the fastest for sure: every other line is then right of 1. single and floor may be left of it: they "
        "are no schemes, but one device with the whole batch, and the least work on lanes of one device."
    )
    return _panel(found, "fastest", "the fastest", text, rows)


def _panel(found: MachineResults, name: str, over: str, text: str, rows: dict[str, list[DataRow]]) -> Panel | None:
    if not rows:
        return None
    text += cut_note(row for own in rows.values() for row in own)
    colour = coloured("variant", variant_colours(found.variants), legend=False)
    tips = (("shown", "ratio"), ("time", "ms a step"))
    spec = interval_rows(found.variants, f"time over {over}", colour, *tips)
    columns = (
        Shown("variant", "variant"),
        Shown("time", "ms a step"),
        Shown("shown", f"time over {over} [95 % interval]"),
        Shown("rounds", "rounds"),
    )
    return Panel(name, f"Time compared with {over}", text, columns, rows, spec, "setting", found.first, found.labels)


def _to_reference(found: Comparison) -> list[DataRow]:
    return _rows([(row.summary, row.ratio.times) for row in found.rows if row.ratio is not None])


def _to_fastest(found: Comparison) -> list[DataRow]:
    winner = winner_of(found)
    if winner is None:
        return []
    best = winner.best
    timed = [row.summary for row in found.rows if row.summary.step_times_s]
    over = [(each, ratio_of_rounds(each.step_times_s, best.step_times_s)) for each in timed if each is not best]
    both = [(best, Estimate(1.0, None, None)), *over]
    return _rows(sorted(both, key=lambda pair: pair[1].value))


def _rows(found: Sequence[tuple[Summary, Estimate]]) -> list[DataRow]:
    drawn = ratio_fields([ratio for _, ratio in found])
    return [{**_row(summary, ratio), **fields} for (summary, ratio), fields in zip(found, drawn, strict=True)]


def _row(found: Summary, ratio: Estimate) -> DataRow:
    assert found.step_time_s is not None
    return {
        "variant": str(found.case.variant),
        "shown": estimate(ratio),
        "time": estimate(found.step_time_s, _MS),
        "rounds": f"{found.rounds_ok}/{found.rounds}",
    }
