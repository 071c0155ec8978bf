"""`dpbench counts`: exact counts, and the committed set with its expectations."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from dpbench.analysis.communication import communication
from dpbench.cases.counted_cases import DEFAULT_VARIANTS, checked_cases, plan_counts, plan_recording
from dpbench.cases.plan import Plan
from dpbench.cases.spec import from_options
from dpbench.cli.measured import count_planned
from dpbench.cli.options import Json, option
from dpbench.cli.terminal import show, show_lines
from dpbench.engine.interpret import ChildError
from dpbench.errors import ExitCode, WrongInputError
from dpbench.jobs.count import count_scripts, countable
from dpbench.records.expected import FOLDER, UPDATE, check_counts, check_folder, update_counts
from dpbench.records.record import Outcome
from dpbench.records.script_record import ScriptJob
from dpbench.report.counts_table import counts_json, counts_text, script_json, script_text
from dpbench.report.progress import waiting
from dpbench.text.outputs import check_output_folder
from dpbench.text.validated import validated

_RANKS = "--nproc-per-node"


def counts(
    variants: Annotated[str | None, option(f"{','.join(DEFAULT_VARIANTS)} by default.", completes="variants")] = None,
    workloads: Annotated[str | None, option("mlp/small by default.", completes="workloads")] = None,
    batch: Annotated[str | None, option("Global batch sizes; 64 by default.")] = None,
    devices: Annotated[str | None, option("sim*n, with Python calls on cpu*n; or cpu*n. sim*4 by default.")] = None,
    dtypes: Annotated[str | None, option("As for `dpbench compare`; float32 by default.")] = None,
    events: Annotated[
        Path | None, option("Write the simulated devices' events to this file; one case.", is_output=True)
    ] = None,
    check: Annotated[bool, option("Compare the committed set with its expectations.", "--check", is_rare=True)] = False,
    update: Annotated[bool, option("Write the expectations anew.", "--update", is_rare=True)] = False,
    expected: Annotated[Path, option("Folder of expectations.", is_rare=True)] = FOLDER,
    script: Annotated[
        str | None, option("Count what the ranks of this script send. Its arguments follow after --.")
    ] = None,
    ranks: Annotated[int | None, option("Ranks of the script: 2 to 8; 2 by default.", _RANKS)] = None,
    steps: Annotated[int | None, option("Steps of the script's optimizer: 3 to 1000; 25 by default.")] = None,
    args: Annotated[list[str] | None, typer.Argument(help="Arguments of the script.", show_default=False)] = None,
    as_json: Json = False,
) -> ExitCode:
    """Count exactly what one training step of each variant does, on simulated devices.

    With --script: count the collectives of a script that torchrun could start, with gloo ranks on this machine.
    """
    chosen = {"variants": variants, "workloads": workloads, "batch": batch, "devices": devices, "dtypes": dtypes}
    if script is not None:
        beside = {**chosen, "events": events, "check": check or None, "update": update or None}
        return _script(script, {"ranks": ranks, "steps": steps}, tuple(args or ()), beside, as_json=as_json)
    for name, value in {_RANKS: ranks, "--steps": steps, "arguments": args}.items():
        if value:
            raise WrongInputError(f"{name}: {value!r} is of a script; allowed: with --script")
    if check or update:
        options = [name for name, value in {**chosen, "events": events}.items() if value is not None]
        return _expectations(expected, options, check=check, update=update, as_json=as_json)
    spec = from_options(chosen | {"variants": variants or ",".join(DEFAULT_VARIANTS)})
    planned = plan_counts(spec) if events is None else plan_recording(spec)
    records = countable(count_planned(planned, events))
    show(counts_json(records, planned.skipped) if as_json else counts_text(records, planned.skipped))
    counted = any(record.outcome is Outcome.OK for record in records)
    return ExitCode.OK if counted else ExitCode.NEGATIVE


def _script(
    script: str, values: dict[str, int | None], args: tuple[str, ...], beside: dict[str, Any], *, as_json: bool
) -> ExitCode:
    for name, value in beside.items():
        if value is not None:
            raise WrongInputError(f"--{name}: {value!r} does not fit a script; allowed: --script without it")
    if not os.path.isfile(script):
        raise WrongInputError(f"script: {script!r} is no file; allowed: a script of Python")
    numbers = {name: value for name, value in values.items() if value is not None}
    fields = {"script": script, "args": args, **numbers}
    job = validated(ScriptJob, fields, lambda key: _RANKS if key == "ranks" else f"--{key}")
    with waiting(f"counting {script}"):
        record = count_scripts([job])[0]
    if record.reason is not None:
        raise ChildError(f"script: {script!r}: {record.reason}")
    sent = communication(record.ranks)
    show(script_json(job, sent) if as_json else script_text(job, sent))
    return ExitCode.OK


def _expectations(folder: Path, options: list[str], *, check: bool, update: bool, as_json: bool) -> ExitCode:
    if options or (check and update):
        option, other = ("check", "update") if check else ("update", "")
        raise WrongInputError(f"--{option}: counts a set of its own; allowed: without --{(options or [other])[0]}")
    if check:
        check_folder(folder)
    else:
        check_output_folder("expected", folder)
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
