"""`dpbench trace`: where the time of a step goes, for Perfetto and in words."""

import json
from pathlib import Path
from typing import Annotated

from dpbench.cases.counted_cases import plan_counts
from dpbench.cases.plan import plan as plan_measured
from dpbench.cases.spec import Spec, from_options
from dpbench.cli.options import RESULTS, WORKLOAD, Json, option
from dpbench.cli.terminal import complain, show
from dpbench.errors import ExitCode, UnusableMachineError, WrongInputError
from dpbench.jobs.sweep import machine_for
from dpbench.jobs.trace_all import trace_recorded, trace_simulated
from dpbench.records.store import StoreError, new_run_path
from dpbench.report.progress import waiting
from dpbench.report.trace_text import trace_json, trace_text
from dpbench.text.files import replace_text
from dpbench.text.outputs import check_output_folder
from dpbench.trace.timeline import Trace, perfetto

_DEFAULT_VARIANTS = "torch_dp,naive,tuned"


def trace(
    workload: Annotated[str, WORKLOAD],
    *,
    variants: Annotated[str, option("Such as torch_dp,tuned,ddp.", completes="variants")] = _DEFAULT_VARIANTS,
    batch: Annotated[str | None, option("Items in the global batch; 64 by default.")] = None,
    devices: Annotated[str | None, option("Real devices, such as cpu*2, or simulated ones, such as sim*4.")] = None,
    output: Annotated[Path, option("Folder for the Perfetto file.")] = RESULTS,
    as_json: Json = False,
) -> ExitCode:
    """Show where the time of one step goes: a Perfetto file, and the critical path in words.

    The step is simulated on sim*n, or else recorded by torch.profiler on this machine.
    """
    spec = from_options({"workloads": workload, "variants": variants, "batch": batch, "devices": devices})
    _check_one(spec)
    check_output_folder("output", output)
    traced = _traced(spec)
    show(trace_json(traced) if as_json else trace_text(traced))
    complain(f"for ui.perfetto.dev: {_write(traced, output)}")
    return ExitCode.OK if any(variant.timeline is not None for variant in traced.variants) else ExitCode.NEGATIVE


def _write(traced: Trace, folder: Path) -> Path:
    try:
        events = new_run_path(folder, "trace", ".perfetto.json")
        replace_text(events, json.dumps(perfetto(traced)))
    except StoreError as error:
        raise WrongInputError(str(error).replace("results:", "output:", 1)) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise WrongInputError(f"output: {str(folder)!r} cannot be written: {reason}; allowed: a folder") from error
    return events


def _check_one(spec: Spec) -> None:
    for name, values in (("workload", spec.workloads), ("batch", spec.batch), ("devices", spec.devices or ("",))):
        if len(values) > 1:
            raise WrongInputError(f"{name}: {len(values)} of them; allowed: one")


def _traced(spec: Spec) -> Trace:
    lanes = spec.devices[0] if spec.devices else ()
    if any(device.startswith("sim") for device in lanes):
        planned = plan_counts(spec)
        cases = [case for case in planned.cases if case.devices[0].startswith("sim")]
        with waiting("simulating"):
            return trace_simulated(cases, planned.skipped)
    machine = machine_for(spec)
    if reason := machine.why_unusable(spec.devices):
        raise UnusableMachineError(reason)
    plan = plan_measured(spec, machine)
    # The plan has a `single` with a smaller batch too, for percentages.
    cases = [case for case in plan.cases if case.variant in spec.variants and case.batch == spec.batch[0]]
    with waiting("profiling a step of each variant"):
        return trace_recorded(cases, plan.skipped)
