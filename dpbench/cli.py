"""The command line: options in, one call per command, an exit code out.

`dpbench.errors.ExitCode` has the exit codes. Those of `gate` are its verdicts: 0 pass, 1 slower, 2 undecided, 3 broken.
For `gate`, wrong input is 3 too.
"""

import errno
import os
import sys
import traceback
from functools import partial
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from dpbench import __version__, cli_asv, cli_doctor, cli_elastic, cli_gate, cli_project, cli_report, cli_trace
from dpbench.cli_measured import OutputOptions, count_planned, measure_spec
from dpbench.cli_page import Open
from dpbench.cli_shared import (
    RESULTS,
    Details,
    Json,
    Markdown,
    complain,
    example,
    form_of,
    guarded_streams,
    option,
    show,
    show_lines,
    unusable,
    usage_line,
    warn,
)
from dpbench.errors import ExitCode, ReportedError, WrongInputError
from dpbench.report.counts_table import counts_json, counts_text
from dpbench.report.vocabulary import vocabulary_json, vocabulary_text
from dpbench.results.expected import FOLDER, UPDATE, check_counts, check_folder, update_counts
from dpbench.results.record import Outcome
from dpbench.results.run_path import new_run_path, sweep_path
from dpbench.results.store import Retry
from dpbench.run.ask import ask_machine
from dpbench.run.count_all import countable
from dpbench.run.launched.on_all_ranks import on_all_ranks
from dpbench.sweep.counted_cases import DEFAULT_VARIANTS, checked_cases, plan_counts, plan_recording
from dpbench.sweep.names import UNITS
from dpbench.sweep.outside import printable
from dpbench.sweep.plan import Plan
from dpbench.sweep.spec import SpecError, from_options, load_spec

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_WRONG_PATH = (errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES, errno.ENOTDIR, errno.EISDIR, errno.ENOENT)
_REPORT = "this is an error in dpbench; please report it with the traceback, which --debug or DPBENCH_DEBUG=1 prints"
_VARIANTS_HELP = (
    "Such as tuned,naive; all schemes by default. Parameters go in brackets, quoted, because shells expand them: "
    "'tuned[dispatch=threads,bucket_bytes=1MiB],naive'. See dpbench list."
)

_WORKLOADS_HELP = (
    "Such as mlp/small,my_model:factory. Families, with the items of their batches: "
    + ", ".join(f"{family} ({unit})" for family, unit in UNITS.items())
    + "."
)

_ALLOW_DIFFERENT = "Compare records of different environments; report the differences."
AllowDifferent = Annotated[bool, typer.Option("--allow-different", help=_ALLOW_DIFFERENT)]
Results = Annotated[Path, typer.Option(help="Folder of records, one file for each run.")]


@app.command(epilog=example("dpbench compare --variants 'tuned[dispatch=threads],naive' --devices 'cpu*4'"))
def compare(
    variants: Annotated[str | None, option(_VARIANTS_HELP)] = None,
    workloads: Annotated[str, option(_WORKLOADS_HELP)] = "mlp/small",
    batch: Annotated[str, option("Global batch sizes, such as 64,256.")] = "64",
    devices: Annotated[str | None, option("One device per lane, such as cpu*4,cuda:0*2,cuda:0+cuda:1.")] = None,
    modes: Annotated[str, option("train, infer, or both: train,infer.")] = "train",
    dtypes: Annotated[str, option("float32, float64, bfloat16.")] = "float32",
    data: Annotated[str, option("random or digits.")] = "random",
    rounds: Annotated[str, option("Fresh processes for each case.")] = "5",
    budget: Annotated[
        str, option("Time for all cases, such as 90s or 2m. It is kept by fewer rounds, but three.")
    ] = "70s",
    timeout: Annotated[str, option("Time for one process, without its sampling, such as 2m.")] = "2m",
    threads: Annotated[str | None, option("Intra-op threads of all lanes together; all cores by default.")] = None,
    seed: Annotated[str, option("Seed of models, batches and the order of cases.")] = "0",
    steps_per_sample: Annotated[str, option("Steps without a wait for the devices; a time is a sample's share.")] = "1",
    allow_different: AllowDifferent = False,
    results: Results = RESULTS,
    details: Details = False,
    opens: Open = False,
    as_json: Json = False,
    as_markdown: Markdown = False,
) -> ExitCode:
    """Compare the variants that this machine can run."""
    make_spec = partial(
        from_options,
        {
            "variants": variants,
            "workloads": workloads,
            "batch": batch,
            "devices": devices,
            "modes": modes,
            "dtypes": dtypes,
            "data": data,
            "rounds": rounds,
            "budget": budget,
            "case_time": budget,
            "timeout": timeout,
            "threads": threads,
            "seed": seed,
            "steps_per_sample": steps_per_sample,
        },
    )
    make_path = partial(new_run_path, results, "compare")
    output = OutputOptions(form_of(as_json=as_json, as_markdown=as_markdown), details, opens, allow_different)
    measuring = partial(measure_spec, make_path, output, with_counts=True)
    return on_all_ranks(os.environ, make_spec, measuring)


@app.command(epilog=example("dpbench sweep benchmarks/sweeps/quick.toml"))
def sweep(
    spec: Annotated[Path, typer.Argument(help="A TOML file; its keys are compare's options.")],
    retry: Annotated[Retry | None, option("failed: measure the cases again whose records are not ok.")] = None,
    allow_different: AllowDifferent = False,
    results: Results = RESULTS,
    details: Details = False,
    opens: Open = False,
    as_json: Json = False,
    as_markdown: Markdown = False,
) -> ExitCode:
    """Measure a sweep file. If it was stopped before, go on from there."""
    make_path = partial(sweep_path, results, spec)
    output = OutputOptions(form_of(as_json=as_json, as_markdown=as_markdown), details, opens, allow_different)
    measuring = partial(measure_spec, make_path, output, retry=retry)
    return on_all_ranks(os.environ, partial(load_spec, spec), measuring)


@app.command("list", epilog=example("dpbench list"))
def list_names(as_json: Json = False) -> ExitCode:
    """List variants and their parameters, workloads, modes and metrics."""
    warn(unusable(ask_machine()))
    show(vocabulary_json() if as_json else vocabulary_text())
    return ExitCode.OK


@app.command(epilog=example("dpbench counts --workloads transformer/tiny --devices sim*4"))
def counts(
    variants: Annotated[str | None, option(f"{','.join(DEFAULT_VARIANTS)} by default.")] = None,
    workloads: Annotated[str | None, option("mlp/small by default.")] = None,
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


@app.callback(invoke_without_command=True)
def _before(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Print the traceback of an error in dpbench.")] = False,  # noqa: ARG001  # `_run` reads it
) -> None:
    """Benchmark data parallelism in PyTorch: which variant is fastest on this machine, and how far from the limit."""
    if version:
        show(f"dpbench {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is not None:
        try:
            Path.cwd()
        except OSError as error:
            raise WrongInputError(f"current directory: {error.strerror}; allowed: one that exists") from error


cli_asv.add_to(app)
cli_doctor.add_to(app)
cli_elastic.add_to(app)
cli_gate.add_to(app)
cli_project.add_to(app)
cli_report.add_to(app)
cli_trace.add_to(app)


def main() -> NoReturn:
    """Run the command line and exit with one of `ExitCode`."""
    with guarded_streams() as out:
        code = _run(sys.argv[1:])
        out.flush()
        if out.lost is not None and code != ExitCode.INTERRUPTED:
            complain(f"standard output: cannot be written: {out.lost.strerror}")
            code = ExitCode.FAILED
    sys.exit(code)


def _run(words: list[str]) -> int:
    """Run the command with these words and return its exit code. An error becomes a line on standard error."""
    debugs = "--debug" in words or os.environ.get("DPBENCH_DEBUG", "0") not in ("", "0")
    words = [word for word in words if word != "--debug"] or ["--help"]
    try:
        code: int = app(words, standalone_mode=False) or ExitCode.OK
        if code != ExitCode.INTERRUPTED:  # typer turns a KeyboardInterrupt into this code
            return code
        raise KeyboardInterrupt
    except (KeyboardInterrupt, typer.Abort):
        complain("interrupted; what was recorded so far is kept")
        return ExitCode.INTERRUPTED
    except ReportedError as error:
        line, code = str(error), error.exit_code
    except typer.TyperException as error:
        line, code = usage_line(error.format_message(), "dpbench"), ExitCode.WRONG_INPUT
    except Exception as error:
        if isinstance(error, OSError) and error.filename and error.errno in _WRONG_PATH:
            line, code = f"{error.filename!r}: {error.strerror}; allowed: a path that can be used", ExitCode.WRONG_INPUT
        else:
            line, code = f"{type(error).__name__}: {error}; {_REPORT}", ExitCode.FAILED
        if debugs:
            sys.stderr.write(printable(traceback.format_exc()))
    complain(line)
    command = next((word for word in words if not word.startswith("-")), None)
    return ExitCode.FAILED if command == "gate" else code
