"""`dpbench compare` and `dpbench sweep`: measure cases that options name, or those of a sweep file."""

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from dpbench.cases.names import UNITS
from dpbench.cases.spec import from_options, load_spec
from dpbench.cli.measured import measure_spec
from dpbench.cli.options import MeasuredOutput, Reference, option
from dpbench.errors import ExitCode
from dpbench.jobs.budget import USUAL
from dpbench.jobs.launched.on_all_ranks import leading
from dpbench.records.store import Retry, new_run_path, sweep_path
from dpbench.text.outputs import check_output

_VARIANTS_HELP = (
    "Such as tuned,naive; all schemes by default. Parameters go in brackets, quoted, because shells expand them: "
    "'tuned[dispatch=threads,bucket_bytes=1MiB],naive'. See dpbench list."
)

_WORKLOADS_HELP = (
    "Such as mlp/small,my_model:factory. Families, with the items of their batches: "
    + ", ".join(f"{family} ({unit})" for family, unit in UNITS.items())
    + "."
)


@dataclass(frozen=True, kw_only=True)
class SpecOptions:
    """The fields of `Spec`, as text."""

    variants: Annotated[str | None, option(_VARIANTS_HELP, completes="variants")] = None
    workloads: Annotated[str, option(_WORKLOADS_HELP, completes="workloads")] = "mlp/small"
    batch: Annotated[str, option("Global batch sizes, such as 64,256.")] = "64"
    devices: Annotated[str | None, option("One device per lane, such as cpu*4,cuda:0*2,cuda:0+cuda:1.")] = None
    modes: Annotated[str, option("train, infer, or both: train,infer.")] = "train"
    dtypes: Annotated[str, option("float32, float64, bfloat16, autocast-bfloat16, autocast-float16.")] = "float32"
    data: Annotated[str, option("random or digits.")] = "random"
    rounds: Annotated[
        str | None, option("Fresh processes for each case; 3 to 5 by default, as the budget has room.")
    ] = None
    budget: Annotated[
        str | None,
        option(f"Time for all cases, such as 2m; {USUAL} by default. It is kept by fewer rounds, but three."),
    ] = None
    timeout: Annotated[str, option("Time for one process, without its sampling, such as 2m.", is_rare=True)] = "2m"
    threads: Annotated[str | None, option("Intra-op threads of all lanes together; all cores by default.")] = None
    seed: Annotated[str, option("Seed of models, batches and the order of cases.", is_rare=True)] = "0"
    steps_per_sample: Annotated[
        str, option("Steps without a wait for the devices; a time is a sample's share.", is_rare=True)
    ] = "1"
    reference: Reference = None


def compare(options: SpecOptions, output: MeasuredOutput) -> ExitCode:
    """Compare the variants that this machine can run."""
    budget = USUAL if options.budget is None else options.budget
    settles = options.budget is None and options.rounds is None
    texts = asdict(options) | {"budget": budget, "case_time": budget}
    with leading(os.environ, lambda: from_options(texts)) as lead:
        if isinstance(lead, ExitCode):
            return lead
        return measure_spec(
            lead, lambda: new_run_path(output.results, "compare"), output, with_counts=True, settles=settles
        )


def sweep(
    spec: Annotated[Path, typer.Argument(help="A TOML file; its keys are compare's options.")],
    output: MeasuredOutput,
    retry: Annotated[Retry | None, option("failed: measure the cases again whose records are not ok.")] = None,
) -> ExitCode:
    """Measure a sweep file. If it was stopped before, go on from there."""
    with leading(os.environ, lambda: load_spec(spec)) as lead:
        if isinstance(lead, ExitCode):
            return lead
        path = sweep_path(output.results, spec)
        page = path.with_suffix(".html")
        if os.path.lexists(page):
            check_output("results", page, [spec])
        return measure_spec(lead, lambda: path, output, retry=retry, resumes=True, inputs=(spec, path, page))
