"""`dpbench elastic`: a training run under torchrun in which workers fail."""

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from dpbench.cli.options import RESULTS, PageOutput, option
from dpbench.cli.page import finish_page_beside
from dpbench.cli.terminal import show, warn
from dpbench.elastic.request import check_checkpoints, check_factory, duration_s, elastic_settings
from dpbench.elastic.training_runs import run_elastic
from dpbench.engine.other_load import LoadMeter
from dpbench.errors import ExitCode
from dpbench.records.record import Outcome
from dpbench.records.store import append_row, drop_if_empty, new_run_path
from dpbench.report.elastic_table import elastic_json, elastic_text
from dpbench.report.progress import stages
from dpbench.text.outputs import check_output_folder


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What `elastic_settings` checks."""

    ranks: Annotated[int, option("Worker processes, each with one CPU lane.", "--nproc-per-node")] = 2
    steps: Annotated[int, option("Training steps of each run.")] = 60
    checkpoint_every: Annotated[int, option("Steps between checkpoints.")] = 10
    checkpoint_format: Annotated[
        str, option("torch.save: rank 0 writes one file; dcp: torch.distributed.checkpoint.")
    ] = "torch.save"
    max_restarts: Annotated[int, option("Restarts that torchrun allows.")] = 3
    faults: Annotated[str, option("A fault of each kind at a drawn step: kill,oom,hang,leave,join.")] = "kill"
    plan: Annotated[str | None, option("Faults as KIND@STEP:RANK, such as kill@12:1,leave@30:0,join@40.")] = None
    hang_timeout: Annotated[str, option("A collective that takes longer ends the worker.")] = "30s"
    workload: Annotated[str, option("mlp/small or my_model:factory.", completes="workloads")] = "mlp/small"
    batch: Annotated[int, option("Items in the global batch.")] = 64
    dtype: Annotated[str, option("float32 or float64.")] = "float32"
    seed: Annotated[int, option("Seed of the model, the batches and the drawn faults.")] = 0


def elastic(
    run: RunOptions,
    output: PageOutput,
    timeout: Annotated[str, option("Time for one of the two runs.")] = "5m",
    checkpoints: Annotated[Path | None, option("Folder for checkpoints, which are removed at the end.")] = None,
    results: Annotated[Path, option("Folder of records, one file for each call.")] = RESULTS,
) -> ExitCode:
    """Train under torchrun while workers fail, hang, leave and join, and measure each outage."""
    from dpbench.report.page.inputs import PageInputs

    meter = LoadMeter()
    settings = elastic_settings(**asdict(run))
    timeout_s = duration_s("timeout", timeout)
    check_output_folder("results", results)
    check_factory(settings, timeout_s)
    if checkpoints is not None:
        check_checkpoints(checkpoints)
    path = new_run_path(results, "elastic")
    try:
        load = meter.read(1.0)  # the clock of /proc/stat is coarse
        warn(load.warning("outages are longer too") if load else [])
        with stages() as say:
            keep = partial(append_row, path)
            records = run_elastic(settings, path.stem, timeout_s, checkpoints, keep=keep, say=say)
    finally:
        drop_if_empty(path)
    show(elastic_json(records) if output.as_json else elastic_text(records))
    finish_page_beside(PageInputs(elastic=records), lambda: path.with_suffix(".html"), output)
    return ExitCode.OK if all(record.outcome is Outcome.OK for record in records) else ExitCode.NEGATIVE
