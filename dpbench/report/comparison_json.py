"""Comparisons as one JSON object.

SCHEMA history
    1  first.
"""

from dataclasses import asdict
from typing import Any

from dpbench.report.headline import headline
from dpbench.report.ladder import ladders
from dpbench.report.ladder_table import ladders_json
from dpbench.results.compare import Comparison, Comparisons, Row
from dpbench.results.device_summary import DeviceSummary
from dpbench.results.summary import Summary
from dpbench.stats.rounds import Estimate
from dpbench.sweep.case import Case

SCHEMA = 1
_AXES = {"variant", "workload", "batch", "devices", "mode", "dtype", "steps_per_sample"}


def comparisons_json(found: Comparisons) -> dict[str, Any]:
    """Return ``{"schema", "environment", "cases", "ladders", "answers"}``.

    Each case is in `cases` once; fields that do not apply are None. The rungs of `ladders` name cases by id. `answers`
    has for each setting what to use, and further sentences.

    If records of different environments were allowed, ``differences`` has the differing fields with their values.
    """
    rows = _rows(found)
    differences = {name: list(values) for name, values in found.differences.items()}
    return {
        "schema": SCHEMA,
        "environment": None if found.environment is None else found.environment.model_dump(mode="json"),
        **({"differences": differences} if differences else {}),
        "cases": [case_json(row) for row in rows],
        "ladders": ladders_json(ladders(found)),
        "answers": [_answer(comparison) for comparison in found.comparisons],
    }


def _answer(comparison: Comparison) -> dict[str, Any]:
    said = headline(comparison)
    return {"setting": said.setting.setting, "answer": said.answer, "sentences": list(said.sentences[1:])}


def _rows(found: Comparisons) -> list[Row]:
    """Return one row for each case.

    `single` is in several comparisons if their first lanes are equal. Its ratio and percentages are then None.
    """
    rows: dict[Case, Row] = {}
    for row in (row for comparison in found.comparisons for row in comparison.rows):
        rows[row.summary.case] = row if row.summary.case not in rows else Row(row.summary)
    return [*rows.values(), *(Row(summary) for summary in found.single_device_baselines)]


def case_json(row: Row) -> dict[str, Any]:
    """Return the object of one case."""
    summary, case = row.summary, row.summary.case
    return {
        "id": case.id,
        **case.model_dump(mode="json", include=_AXES),
        "outcome": str(summary.outcome),
        "has_enough_samples": summary.thin_rounds == 0 if summary.step_times_s else None,
        "step_time_s": _step_time(summary.step_time_s, sum(map(len, summary.step_times_s))),
        "ratio": None if row.ratio is None else {"to": str(row.ratio.to), **asdict(row.ratio.times)},
        "percent_of_limit": row.percent_of_limit,
        "percent_of_single": row.percent_of_single,
        **_beside_the_times(summary),
        "loss": None if summary.loss is None else asdict(summary.loss),
        "counts": None,
        "reason": summary.reason,
    }


def _beside_the_times(summary: Summary) -> dict[str, Any]:
    """Return the figures beside the times, by phase, rank and device. Without any, the fields are None."""
    phases = summary.phases
    return {
        "phases_s": {name: asdict(each) for name, each in phases.phases_s.items()}
        if phases and phases.phases_s
        else None,
        "slowest_rank_phases_s": {name: asdict(each) for name, each in phases.slowest_phases_s.items()}
        if phases and phases.slowest_phases_s
        else None,
        "skew_s": asdict(phases.skew_s) if phases and phases.skew_s else None,
        "rank_lag_s": [asdict(each) for each in phases.rank_lag_s] if phases and phases.rank_lag_s else None,
        "machine_skew_s": asdict(phases.machine_skew_s) if phases and phases.machine_skew_s else None,
        "peak_rss_bytes": asdict(summary.peak_rss_bytes) if summary.peak_rss_bytes else None,
        "by_device": {each.device: _device(each) for each in summary.devices} if summary.devices else None,
    }


def _device(found: DeviceSummary) -> dict[str, Any]:
    """Return the figures of one device. `uuids` has one UUID, unless rounds were measured on several GPUs."""
    figures = {name: asdict(each) for name, each in found.figures.items()}
    throttled_s = {cause: asdict(each) for cause, each in found.throttled_s.items()}
    return {"uuids": list(found.uuids), **figures, "throttled_s": throttled_s}


def _step_time(found: Estimate | None, samples: int) -> dict[str, Any] | None:
    return None if found is None else {"median": found.value, "low": found.low, "high": found.high, "samples": samples}
