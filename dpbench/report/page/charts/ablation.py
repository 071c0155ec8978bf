"""What each technique of the tuned wrapper is worth: tuned with one technique changed, over tuned."""

from dpbench.report.page.machines import MachineResults
from dpbench.report.page.parts import DataRow, Panel, Shown
from dpbench.report.page.theme import BAD, GOOD, MUTED, chart, coloured, number_axis, row_step, rows_of, tooltip
from dpbench.report.units import estimate
from dpbench.results.compare import Comparison
from dpbench.results.winner import is_above_one
from dpbench.stats.rounds import Estimate, ratio_of_rounds
from dpbench.sweep.variants import VariantName

_SLOWER, _FASTER, _SAME = "slower than tuned", "faster than tuned", "not decided"


def ablation(found: MachineResults) -> Panel | None:
    """Return the ladder; None if tuned or all of its changes have no times."""
    rows = {each.setting.setting: own for each in found.shown if (own := _rows(each))}
    if not rows:
        return None
    colour = coloured("verdict", [(_SLOWER, BAD), (_SAME, MUTED), (_FASTER, GOOD)])
    y = rows_of("variant")
    spec = chart(
        {"mark": {"type": "rule", "strokeDash": [4, 3], "color": MUTED}, "encoding": {"x": {"datum": 1.0}}},
        {
            "mark": {"type": "rule", "strokeWidth": 3},
            "encoding": {
                "y": y,
                "x": {"field": "low", "type": "quantitative"},
                "x2": {"field": "high"},
                "color": colour,
            },
        },
        {
            "mark": {"type": "point", "size": 110},
            "encoding": {
                "y": y,
                "x": number_axis("ratio", "time over that of tuned", log=True),
                "color": colour,
                "tooltip": tooltip(("variant", "variant"), ("what", "is"), ("shown", "time over tuned")),
            },
        },
        height=row_step(found.variants),
    )
    return Panel(
        "ablation",
        "What each technique is worth",
        "Each row is tuned with one technique changed. Right of 1 the change costs time, so tuned's own choice is "
        "worth that much. A line that reaches 1 decides nothing.",
        (
            Shown("variant", "variant"),
            Shown("what", "is"),
            Shown("shown", "time over tuned [95 % interval]"),
            Shown("verdict", "verdict"),
        ),
        rows,
        spec,
        "setting",
        found.first,
        found.labels,
    )


def _rows(found: Comparison) -> list[DataRow]:
    timed = [row.summary for row in found.rows if row.summary.step_times_s]
    tuned = next((each for each in timed if str(each.case.variant) == VariantName.TUNED), None)
    if tuned is None:
        return []
    changed = [each for each in timed if each is not tuned and each.case.variant.name.startswith(VariantName.TUNED)]
    ratios = [(each.case.variant, ratio_of_rounds(each.step_times_s, tuned.step_times_s)) for each in changed]
    return [
        {
            "variant": str(variant),
            "what": variant.name.sentence,
            "ratio": ratio.value,
            "low": ratio.value if ratio.low is None else ratio.low,
            "high": ratio.value if ratio.high is None else ratio.high,
            "shown": estimate(ratio),
            "verdict": _verdict(ratio),
        }
        for variant, ratio in sorted(ratios, key=lambda pair: -pair[1].value)
    ]


def _verdict(ratio: Estimate) -> str:
    if is_above_one(ratio):
        return _SLOWER
    return _FASTER if ratio.high is not None and ratio.high < 1 else _SAME
