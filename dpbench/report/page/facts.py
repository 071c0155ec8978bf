"""Tables without a chart: how cases ended, and the environment."""

from collections.abc import Iterator

from dpbench.report.headline import place
from dpbench.report.page.machines import MachineResults
from dpbench.report.page.parts import ALL, DataRow, Panel
from dpbench.results.record import Outcome
from dpbench.results.summary import Summary

_MOST_REASONS = 200
_MOST_LETTERS = 600


def outcomes(found: MachineResults) -> Panel | None:
    """Return the cases that failed or were skipped, or failed in some rounds, with reasons; None without any."""
    rows = list(_outcome_rows(found))
    if not rows:
        return None
    more = f" The first {_MOST_REASONS} of {len(rows)} are shown." if len(rows) > _MOST_REASONS else ""
    columns = {name: name for name in ("variant", "setting", "outcome", "reason")}
    text = f"Cases without times, and cases in which some rounds failed.{more}"
    return Panel("outcomes", "Failed and skipped", text, columns, {ALL: rows[:_MOST_REASONS]})


def environment(found: MachineResults) -> Panel | None:
    """Return what must be equal before times are compared; None if no record has it."""
    if found.environment is None:
        return None
    fields = found.environment.model_dump(mode="json")
    rows: list[DataRow] = [
        {"field": name.replace("_", " "), "value": shown_value(value)}
        for name, value in fields.items()
        if shown_value(value)
    ]
    text = "The machine and the versions, as the measuring processes saw them."
    return Panel("environment", "Environment", text, {"field": "field", "value": "value"}, {ALL: rows})


def _outcome_rows(found: MachineResults) -> Iterator[DataRow]:
    for summary in found.summaries:
        if summary.reason is not None:
            yield _outcome_row(summary)


def _outcome_row(found: Summary) -> DataRow:
    reason = " ".join(str(found.reason).split())
    outcome = "some rounds failed" if found.outcome is Outcome.OK else found.outcome.replace("_", " ")
    return {
        "variant": str(found.case.variant),
        "setting": place(found.case),
        "outcome": outcome,
        "reason": reason if len(reason) <= _MOST_LETTERS else f"{reason[:_MOST_LETTERS]}…",
    }


def shown_value(value: object) -> str:
    """Return a field of the environment as text: equal entries of a list once, with their number."""
    if isinstance(value, list | tuple):
        parts = [str(each) for each in value if each is not None]
        counted = dict.fromkeys(parts)
        return ", ".join(f"{parts.count(each)} x {each}" if parts.count(each) > 1 else each for each in counted)
    return "" if value is None else str(value)
