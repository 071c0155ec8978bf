"""What each technique of the tuned wrapper is worth: tuned with one technique changed, over tuned."""

from dpbench.report.page.charts.interval_rows import cut_note, interval_rows, ratio_fields
from dpbench.report.page.machines import MachineResults
from dpbench.report.page.parts import DataRow, Panel, Shown
from dpbench.report.page.theme import BAD, GOOD, MUTED, coloured
from dpbench.report.units import estimate
from dpbench.results.compare import Comparison
from dpbench.results.winner import is_above_one
from dpbench.stats.rounds import Estimate, ratio_of_rounds
from dpbench.sweep.parameters import shown
from dpbench.sweep.variants import VariantId, VariantName

_SLOWER, _FASTER, _SAME = "slower than tuned", "faster than tuned", "not decided"


def ablation(found: MachineResults) -> Panel | None:
    """Return the ladder; None if tuned or all of its changes have no times."""
    rows = {each.setting.setting: own for each in found.shown if (own := _rows(each))}
    if not rows:
        return None
    colour = coloured("verdict", [(_SLOWER, BAD), (_SAME, MUTED), (_FASTER, GOOD)])
    cut = cut_note(row for own in rows.values() for row in own)
    tips = (("what", "is"), ("shown", "time over tuned"))
    spec = interval_rows(found.variants, "time over that of tuned", colour, *tips)
    return Panel(
        "ablation",
        "What each technique is worth",
        "Each row is tuned with one technique changed. Right of 1 the change costs time, so tuned's own choice is "
        f"worth that much. A line that reaches 1 decides nothing.{cut}",
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
    changed = [each for each in timed if each is not tuned and each.case.variant.name is VariantName.TUNED]
    ratios = [(each.case.variant, ratio_of_rounds(each.step_times_s, tuned.step_times_s)) for each in changed]
    ratios = sorted(ratios, key=lambda pair: -pair[1].value)
    drawn = ratio_fields([ratio for _, ratio in ratios])
    return [
        {
            "variant": str(variant),
            "what": _what(variant),
            **fields,
            "shown": estimate(ratio),
            "verdict": _verdict(ratio),
        }
        for (variant, ratio), fields in zip(ratios, drawn, strict=True)
    ]


def _what(variant: VariantId) -> str:
    """What the variant changes, such as ``send tensors together in buckets: false``."""
    known = variant.name.parameters
    return "; ".join(
        f"{known[key].sentence if key in known else key}: {shown(value)}" for key, value in variant.values.items()
    )


def _verdict(ratio: Estimate) -> str:
    if is_above_one(ratio):
        return _SLOWER
    return _FASTER if ratio.high is not None and ratio.high < 1 else _SAME
