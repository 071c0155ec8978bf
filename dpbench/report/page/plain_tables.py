"""Tables without a chart: devices, links, how cases ended, the environment, words, and all cases for a spreadsheet."""

from collections.abc import Sequence

from dpbench.analysis.answer import ideal_in_words, place
from dpbench.analysis.counted import copies_by_link
from dpbench.cases.names import FAMILIES, Family
from dpbench.records.record import Outcome
from dpbench.report.case_columns import CASE_COLUMNS
from dpbench.report.device_table import devices_columns, devices_legend, devices_lines, devices_of
from dpbench.report.page.machines import MachineResults
from dpbench.report.page.parts import ALL, DataRow, Panel, RawTable, cells_of, headers_of
from dpbench.report.table import Column, of, titled
from dpbench.text.outside import shortened
from dpbench.text.quantities import byte_unit, number

_MOST_REASONS = 200
_OUTCOME_COLUMNS = (
    Column("variant", of("case.variant")),
    Column("setting", lambda summary: place(summary.case)),
    Column("outcome", lambda summary: "some rounds failed" if summary.outcome is Outcome.OK else summary.ended),
    Column("reason", of("reason"), shortened),
)


def outcomes(machine: MachineResults) -> Panel | None:
    """The cases that failed or were skipped, or failed in some rounds; None without any."""
    rows = [cells_of(_OUTCOME_COLUMNS, summary) for summary in machine.summaries if summary.reason is not None]
    if not rows:
        return None
    more = f" The first {_MOST_REASONS} of {len(rows)} are shown." if len(rows) > _MOST_REASONS else ""
    text = f"Cases without times, and cases in which some rounds failed.{more}"
    return Panel("outcomes", "Failed and skipped", text, headers_of(_OUTCOME_COLUMNS), {ALL: rows[:_MOST_REASONS]})


def environment(machine: MachineResults) -> Panel | None:
    """What must be equal before times are compared; None if no record has it."""
    if machine.environment is None:
        return None
    fields = machine.environment.model_dump(mode="json").items()
    texts = {name.replace("_", " "): shown_value(value) for name, value in fields}
    rows: list[DataRow] = [{"field": name, "value": text} for name, text in texts.items() if text]
    text = "The machine and the versions, as the measuring processes saw them."
    return Panel("environment", "Environment", text, {"field": "field", "value": "value"}, {ALL: rows})


def shown_value(value: object) -> str:
    """Equal entries of a list once, with their number."""
    if isinstance(value, list | tuple):
        parts = [str(entry) for entry in value if entry is not None]
        counted = dict.fromkeys(parts)
        return ", ".join(f"{parts.count(part)} x {part}" if parts.count(part) > 1 else part for part in counted)
    return "" if value is None else str(value)


def devices(machine: MachineResults) -> Panel | None:
    """The table of devices of each setting."""
    rows = {comparison.setting.setting: devices_of(comparison.rows) for comparison in machine.shown}
    every = [row for rows_of_key in rows.values() for row in rows_of_key]
    columns = devices_columns(every)
    lines = {key: devices_lines(rows_of_key) if columns else [] for key, rows_of_key in rows.items()}
    return machine.panel(
        *("devices", "Devices", devices_legend(every)),
        columns=headers_of(columns),
        rows={key: [cells_of(columns, line) for line in lines_of_key] for key, lines_of_key in lines.items()},
    )


def _size(size_bytes: float) -> str:
    unit, name = byte_unit([size_bytes])
    return f"{number(size_bytes / unit)} {name}"


_LINK_COLUMNS = (
    Column("from", lambda link: link[0].partition("->")[0], key="source"),
    Column("to", lambda link: link[0].partition("->")[2], key="target"),
    Column("bytes", lambda link: link[1], _size, key="shown"),
    Column("copies", lambda link: link[2], key="copies"),
)


def links(machine: MachineResults) -> Panel | None:
    """Bytes and copies from each device to each other, of each counted case."""
    rows: dict[str, list[DataRow]] = {}
    for record in machine.counts:
        copies, sizes = copies_by_link(record.counts) if record.counts else (None, None)
        counted = [(link, size, (copies or {}).get(link)) for link, size in sorted((sizes or {}).items())]
        cells: list[DataRow] = [cells_of(_LINK_COLUMNS, link) for link in counted]
        if between := [row for row in cells if row["source"] != row["target"]]:
            rows[f"{record.case.variant}: {place(record.case)}, {record.case.mode}, {record.case.dtype}"] = between
    text = "What goes from each device to each other in one step. Counted exactly on simulated devices, not measured."
    columns = headers_of(_LINK_COLUMNS)
    return Panel("link-matrix", "Bytes by link", text, columns, rows, choice="counted") if rows else None


_TERMS = {
    "step": "one forward, loss, backward and update of the parameters; in the mode inference, one forward",
    "reference": "the variant that ratios are to: that of --reference, else torch_dp, naive or the first scheme",
    "round": "one fresh process for each variant; its time is the median of its samples",
    "95 % interval": "how far the figure may be off, from the spread between rounds; two variants are compared round "
    "by round",
    "not decided": "the interval of the ratio of two variants contains 1, so either may be the faster one",
    "lane": "one of the devices that a variant uses, such as cuda:1; lanes of one device share it, as cpu*2 does",
    "lag": "how much later than the fastest rank a rank ends its step",
}
_PHASES = {
    "scatter": "the batch is divided, and each part is sent to its device",
    "replicate": "parameters and buffers are sent to the other devices",
    "parallel_apply": "all devices compute their parts of the forward",
    "gather": "the outputs are sent to one device",
    "reduce": "the gradients of all devices are sent and added",
    "optimiser": "the step of the optimizer, which changes the parameters",
    "collectives": "operations of all processes together, such as the sum of gradients in ddp",
}


def words(machine: MachineResults) -> Panel | None:
    """Folded; None without variants that have times."""
    if not machine.variants:
        return None
    settings = [comparison.setting for comparison in machine.compared.comparisons]
    families = {setting.workload.partition("/")[0] for setting in settings}
    meanings = {
        **{str(variant.name): variant.name.sentence for variant in machine.variants},
        **{f"{family}/...": f"workload; {FAMILIES[family]}" for family in Family if family in families},
        **_TERMS,
        "ideal, limit": ideal_in_words(settings),
        **_PHASES,
    }
    rows: list[DataRow] = [{"word": word, "meaning": meaning} for word, meaning in meanings.items()]
    columns, text = {"word": "word", "meaning": "meaning"}, "What this page means by the names in its charts."
    return Panel("words", "Variants, phases and terms", text, columns, {ALL: rows}, is_folded=True)


MOST_ROWS = 10_000
_RAW = (
    *("workload", "variant", "devices", "batch", "mode", "dtype", "outcome"),
    *("ms a step", "low, 95 %", "high, 95 %", "ratio to reference", "% of ideal", "items/s"),
    *("compiling, s", "skipped steps", "rounds", "host MiB"),
)
_RAW_COLUMNS = sorted(titled(CASE_COLUMNS), key=lambda column: _RAW.index(column.header))


def raw_table(machines: Sequence[MachineResults]) -> RawTable:
    """The first `MOST_ROWS` cases. Columns with one value, such as the workload's, come last."""
    every = [(machine.name, row) for machine in machines for row in machine.compared.cases]
    rows = [{"machine": name, **cells_of(_RAW_COLUMNS, row)} for name, row in every[:MOST_ROWS]]
    headers = ({"machine": "machine"} if len(machines) > 1 else {}) | headers_of(_RAW_COLUMNS)
    fields = sorted(headers, key=lambda field: len(rows) > 1 and len({row[field] for row in rows}) == 1)
    columns = {field: headers[field] for field in fields}
    return RawTable(columns, [[row[field] for field in fields] for row in rows], len(every) - len(rows))
