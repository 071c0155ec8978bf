"""The columns of a case, each declared once: for the page, JSON, CSV and Parquet.

The terminal has two of them. Its time and ratio depend on the table, so `comparison.py` has these.
"""

from typing import Any

from pydantic_core import to_jsonable_python

from dpbench.analysis.compare_variants import ComparedCase
from dpbench.cases.names import format_devices, short_devices
from dpbench.report.table import Column, of


def _samples(row: ComparedCase) -> int:
    return sum(map(len, row.summary.step_times_s))


def _step_time(row: ComparedCase) -> dict[str, float | int | None] | None:
    step = row.summary.step_time_s
    return step and {"median": step.value, "low": step.low, "high": step.high, "samples": _samples(row)}


def _by_device(row: ComparedCase) -> dict[str, Any]:
    """`uuids` has one UUID, unless rounds were measured on several GPUs."""
    return {
        device.device: {"uuids": device.uuids, **device.figures, "throttled_s": device.throttled_s}
        for device in row.summary.devices
    }


AXES = (
    Column("variant", of("summary.case.variant"), key="variant", export="variant"),
    Column("workload", of("summary.case.workload"), key="workload", export="workload"),
    Column("batch", of("summary.case.batch"), key="batch", export="batch_items"),
    Column("devices", of("summary.case.devices"), short_devices, key="devices"),
    Column("", lambda row: format_devices(row.summary.case.devices), export="devices"),
    Column("", of("summary.case.machines"), export="machines"),
    Column("mode", of("summary.case.mode"), key="mode", export="mode"),
    Column("dtype", of("summary.case.dtype"), key="dtype", export="dtype"),
    Column("", of("summary.case.threads"), export="threads"),
    Column("", of("summary.case.seed"), export="seed"),
)
PERCENT = Column("% of ideal", of("percent"))
ITEMS = Column("items/s", of("summary.items_per_s"), export="throughput_items_per_s")
CASE_COLUMNS = (
    Column("", of("summary.case.id"), key="id"),
    *AXES,
    Column("", of("summary.case.steps_per_sample"), key="steps_per_sample"),
    Column("", of("summary.rounds"), export="rounds"),
    Column("rounds", of("summary.rounds_ok"), export="rounds_ok"),
    Column("", _samples, export="samples"),
    Column("", of("summary.outcome"), key="outcome", export="outcome"),
    Column("outcome", lambda row: "ok, few samples" if row.summary.thin_rounds else row.summary.ended),
    Column(
        "",
        lambda row: None if row.summary.step_time_s is None else not row.summary.thin_rounds,
        key="has_enough_samples",
    ),
    Column("", _step_time, key="step_time_s"),
    Column("ms a step", of("summary.step_time_s.value"), unit=1e-3, export="step_time_s"),
    Column("low, 95 %", of("summary.step_time_s.low"), unit=1e-3, export="step_time_low_s"),
    Column("high, 95 %", of("summary.step_time_s.high"), unit=1e-3, export="step_time_high_s"),
    Column("ratio to reference", of("ratio.value")),
    Column("", lambda row: row.ratio and {"to": row.reference, **to_jsonable_python(row.ratio)}, key="ratio"),
    PERCENT,
    Column("", of("percent_of_limit"), key="percent_of_limit"),
    Column("", of("percent_of_single"), key="percent_of_single"),
    ITEMS,
    Column("compiling, s", of("summary.compile_s"), key="compile_s", export="compile_s"),
    Column("skipped steps", of("summary.skipped_steps"), key="skipped_steps", export="skipped_steps"),
    Column("", of("summary.phases.phases_s"), key="phases_s"),
    Column("", of("summary.phases.slowest_phases_s"), key="slowest_rank_phases_s"),
    Column("", of("summary.phases.skew_s"), key="skew_s"),
    Column("", of("summary.phases.rank_lag_s"), key="rank_lag_s"),
    Column("", of("summary.phases.machine_skew_s"), key="machine_skew_s"),
    Column("", of("summary.peak_rss_bytes"), key="peak_rss_bytes"),
    Column("host MiB", of("summary.peak_rss_bytes.value"), unit=2**20, export="peak_rss_bytes"),
    Column("", _by_device, key="by_device"),
    Column("", of("summary.loss"), key="loss"),
    Column("", lambda _: None, key="counts"),
    Column("", of("summary.reason"), key="reason", export="reason"),
)
