"""The command `dpbench counts`: count exactly, or compare the committed set with its expectations."""

from pathlib import Path
from typing import Annotated

import typer

from dpbench.cases.counted_cases import DEFAULT_VARIANTS, checked_cases, plan_counts, plan_recording
from dpbench.cases.plan import Plan
from dpbench.cases.spec import SpecError, from_options
from dpbench.cli.measured import count_planned
from dpbench.cli.shared import Json, example, option, show, show_lines
from dpbench.errors import ExitCode
from dpbench.processes.count_all import countable
from dpbench.records.expected import FOLDER, UPDATE, check_counts, check_folder, update_counts
from dpbench.records.record import Outcome
from dpbench.report.counts_table import counts_json, counts_text


def counts(
    variants: Annotated[str | None, option(f"{','.join(DEFAULT_VARIANTS)} by default.", names="variants")] = None,
    workloads: Annotated[str | None, option("mlp/small by default.", names="workloads")] = None,
    batch: Annotated[str | None, option("Global batch sizes; 64 by default.")] = None,
    devices: Annotated[str | None, option("sim*n, with Python calls on cpu*n; or cpu*n. sim*4 by default.")] = None,
    events: Annotated[
        Path | None, option("Write the simulated devices' events to this file; one case.", is_output=True)
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Compare the committed set with its expectations.")] = False,
    update: Annotated[bool, typer.Option("--update", help="Write the expectations anew.")] = False,
    expected: Annotated[Path, option("Folder of expectations.")] = FOLDER,
    as_json: Json = False,
) -> ExitCode:
    """Count exactly what one training step of each variant does, on simulated devices."""
    chosen = {"variants": variants, "workloads": workloads, "batch": batch, "devices": devices}
    if check or update:
        given = [name for name, value in {**chosen, "events": events}.items() if value is not None]
        return _expectations(expected, given, check=check, update=update, as_json=as_json)
    spec = from_options(chosen | {"variants": variants or ",".join(DEFAULT_VARIANTS)})
    planned = plan_counts(spec) if events is None else plan_recording(spec)
    records = countable(count_planned(planned, events))
    show(counts_json(records, planned.skipped) if as_json else counts_text(records, planned.skipped))
    counted = any(record.outcome is Outcome.OK for record in records)
    return ExitCode.OK if counted else ExitCode.NEGATIVE


def _expectations(folder: Path, given: list[str], *, check: bool, update: bool, as_json: bool) -> ExitCode:
    """Count the set whose expectations are committed, and compare it with them or write them anew."""
    if given or (check and update):
        option, other = ("check", "update") if check else ("update", "")
        raise SpecError(f"--{option}: counts a set of its own; allowed: without --{(given or [other])[0]}")
    if check:
        check_folder(folder)
    records = count_planned(Plan(checked_cases(), ()))
    if update:
        show_lines([f"recorded: {update_counts(folder, records)}"])
        return ExitCode.OK
    lines = check_counts(folder, records)
    if as_json:
        show({**counts_json(records), "differences": lines})
    else:
        shown = [*lines, f"to record what is counted now: {UPDATE}"] if lines else [f"{len(records)} cases as expected"]
        show_lines(shown)
    return ExitCode.NEGATIVE if lines else ExitCode.OK


def add_to(app: typer.Typer) -> None:
    """Add `counts` to the command line."""
    app.command("counts", epilog=example("dpbench counts --workloads transformer/tiny --devices sim*4"))(counts)
