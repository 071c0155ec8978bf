"""What a script's ranks send each other, as tables by line of code, and as JSON."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from dpbench.records.communication import WARM_UP, Communication, Issue, Issues, ScriptJob
from dpbench.report.comparison import SCHEMA
from dpbench.report.table import Column, Table

_LEGEND = (
    "Exact counts. Bytes: the payload of one collective. Unaligned: a payload whose size is no multiple of 16 bytes, "
    "which is slow. Exposed: the rank computes nothing between the issue and the moment when it needs the result. "
    "A collective counts once for all ranks; send and recv count in each. A step ends with an optimizer's step."
)
_MOST_NUMBERS = 5


def script_text(job: ScriptJob, found: Communication) -> Group:
    """Return a table for the set-up, for the commonest step and for what other steps do more or less."""
    parts: list[RenderableType] = [
        *_table("Before the first forward", found.setup),
        *_table("Each step", found.step),
        Text(f"{_total(found)}\n"),
        *_table(f"Beyond that, in steps {_numbers(found)} together", found.seldom),
        *_table(f"Missing, in steps {_numbers(found)} together", found.less),
        *(Text(f"the ranks differ: {line}") for line in found.differences[:_MOST_NUMBERS]),
    ]
    return Group(Text(f"{job.script}, {job.ranks} ranks\n"), *parts, Text(_LEGEND, style="dim"))


def script_json(job: ScriptJob, found: Communication) -> dict[str, Any]:
    """Return the counters by name, and what each line issues."""
    fields = found.model_dump(mode="json")
    return {
        "schema": SCHEMA,
        **job.model_dump(mode="json", exclude={"folder", "steps"}),
        "counters": found.by_name(),
    } | fields


def _table(title: str, issues: Issues) -> Iterator[RenderableType]:
    if issues:
        yield Table(title, _COLUMNS, list(issues))


def _total(found: Communication) -> str:
    count, exposed = (sum(i.count for i in found.step if i.is_exposed >= least) for least in (False, True))
    size = sum(issue.count * issue.size_bytes for issue in found.step)
    of = f"{found.steps - len(found.differing):,} of {found.steps:,} steps after the first {WARM_UP}"
    return f"{of}: {count:,} collectives, {exposed:,} exposed, {size:,} bytes"


def _numbers(found: Communication) -> str:
    more = ", ..." if len(found.differing) > _MOST_NUMBERS else ""
    return ", ".join(map(str, found.differing[:_MOST_NUMBERS])) + more


def _marks(issue: Issue) -> str | None:
    return ", ".join([*["exposed"] * issue.is_exposed, *["unaligned"] * issue.is_unaligned]) or None


_COLUMNS = [
    Column("phase", lambda issue: issue.part.value, is_text=True),
    Column("collective", lambda issue: issue.kind, is_text=True),
    Column("count", lambda issue: f"{issue.count:,}"),
    Column("bytes", lambda issue: f"{issue.size_bytes:,}"),
    Column("dtype", lambda issue: issue.dtypes or None, is_text=True),
    Column("is", _marks, is_text=True),
    Column("line", lambda issue: f"{Path(issue.place.file).name}:{issue.place.line}", is_text=True),
]
