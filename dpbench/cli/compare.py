"""`dpbench compare` and `dpbench sweep`: measure cases that options name, or those of a sweep file."""

import os
from pathlib import Path
from typing import Annotated

import typer

from dpbench.cases.names import UNITS
from dpbench.cases.spec import from_options, load_spec
from dpbench.cli.measured import OutputOptions, measure_spec
from dpbench.cli.page import Open
from dpbench.cli.shared import RESULTS, Command, Details, Json, Markdown, Reference, example, form_of, option
from dpbench.errors import ExitCode
from dpbench.jobs.launched.on_all_ranks import leading
from dpbench.records.store import Retry, new_run_path, sweep_path

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
Csv = Annotated[Path | None, option("Write a row for each case to this file too.", is_output=True)]
Results = Annotated[Path, typer.Option(help="Folder of records, one file for each run.")]


def compare(
    variants: Annotated[str | None, option(_VARIANTS_HELP, completes="variants")] = None,
    workloads: Annotated[str, option(_WORKLOADS_HELP, completes="workloads")] = "mlp/small",
    batch: Annotated[str, option("Global batch sizes, such as 64,256.")] = "64",
    devices: Annotated[str | None, option("One device per lane, such as cpu*4,cuda:0*2,cuda:0+cuda:1.")] = None,
    modes: Annotated[str, option("train, infer, or both: train,infer.")] = "train",
    dtypes: Annotated[str, option("float32, float64, bfloat16.")] = "float32",
    data: Annotated[str, option("random or digits.")] = "random",
    rounds: Annotated[str, option("Fresh processes for each case.")] = "5",
    budget: Annotated[
        str, option("Time for all cases, such as 90s or 2m. It is kept by fewer rounds, but three.")
    ] = "70s",
    timeout: Annotated[str, option("Time for one process, without its sampling, such as 2m.", is_rare=True)] = "2m",
    threads: Annotated[str | None, option("Intra-op threads of all lanes together; all cores by default.")] = None,
    seed: Annotated[str, option("Seed of models, batches and the order of cases.", is_rare=True)] = "0",
    steps_per_sample: Annotated[
        str, option("Steps without a wait for the devices; a time is a sample's share.", is_rare=True)
    ] = "1",
    reference: Reference = None,
    allow_different: AllowDifferent = False,
    results: Results = RESULTS,
    details: Details = False,
    opens: Open = False,
    as_json: Json = False,
    as_markdown: Markdown = False,
    csv: Csv = None,
) -> ExitCode:
    """Compare the variants that this machine can run."""
    options = {
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
        "reference": reference,
    }
    output = OutputOptions(form_of(as_json=as_json, as_markdown=as_markdown), details, opens, allow_different, csv)
    with leading(os.environ, lambda: from_options(options)) as lead:
        if isinstance(lead, ExitCode):
            return lead
        return measure_spec(lead, lambda: new_run_path(results, "compare"), output, with_counts=True)


def sweep(
    spec: Annotated[Path, typer.Argument(help="A TOML file; its keys are compare's options.")],
    retry: Annotated[Retry | None, option("failed: measure the cases again whose records are not ok.")] = None,
    allow_different: AllowDifferent = False,
    results: Results = RESULTS,
    details: Details = False,
    opens: Open = False,
    as_json: Json = False,
    as_markdown: Markdown = False,
    csv: Csv = None,
) -> ExitCode:
    """Measure a sweep file. If it was stopped before, go on from there."""
    output = OutputOptions(form_of(as_json=as_json, as_markdown=as_markdown), details, opens, allow_different, csv)
    with leading(os.environ, lambda: load_spec(spec)) as lead:
        if isinstance(lead, ExitCode):
            return lead
        return measure_spec(lead, lambda: sweep_path(results, spec), output, retry=retry, resumes=True)


def add_to(app: typer.Typer) -> None:
    app.command(
        "compare",
        cls=Command,
        epilog=example("dpbench compare --variants 'tuned[dispatch=threads],naive' --devices 'cpu*4'"),
    )(compare)
    app.command("sweep", epilog=example("dpbench sweep benchmarks/sweeps/quick.toml"))(sweep)
