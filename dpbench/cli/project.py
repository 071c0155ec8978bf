"""`dpbench project`: step times on machines that are only described."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from dpbench.cases.names import parse_workload
from dpbench.cases.variants import VariantId, split_list
from dpbench.cli.options import RESULTS, WORKLOAD, PageOutput, option
from dpbench.cli.page import finish_page_beside
from dpbench.cli.terminal import show, show_lines
from dpbench.errors import ExitCode, WrongInputError, naming
from dpbench.jobs.project_all import count_for, project_machine, ways_of
from dpbench.projection.machine_file import load_machine, machine_names
from dpbench.projection.rules import MATHS, check_batch, check_variant
from dpbench.projection.step_sum import Setting, fitted
from dpbench.records.store import new_run_path
from dpbench.report.progress import waiting
from dpbench.report.projection_table import projections_json, projections_text
from dpbench.text.outputs import check_output_folder
from dpbench.text.outside import quoted
from dpbench.text.validated import MOST

_UNITS = {"loader": "items a second", "one-device": "milliseconds"}
_VARIANTS = "single,torch_dp,tuned,ddp"


def project(
    output: PageOutput,
    workload: Annotated[str | None, WORKLOAD] = None,
    *,
    machine: Annotated[str | None, option("Names or TOML files, such as 8xV100-pcie,4xA100-nvswitch.")] = None,
    variants: Annotated[str, option("Such as single,torch_dp,tuned,ddp.", completes="variants")] = _VARIANTS,
    batch: Annotated[str | None, option("Items in the global batch; 32 for each device by default.")] = None,
    math: Annotated[
        str, option("default: convolutions in TF32 where the device can; float32; tf32; bf16: autocast.")
    ] = "default",
    ahead: Annotated[bool, option("The host does not wait for the devices after a step.", "--ahead")] = False,
    loader: Annotated[float | None, option("Items a second that the data loader can deliver.")] = None,
    one_device: Annotated[float | None, option("The measured step of one device with its share, in ms.")] = None,
    results: Annotated[Path, option("Folder for the page.")] = RESULTS,
    list_machines: Annotated[bool, option("List the machines.", "--list")] = False,
) -> ExitCode:
    """Project step times on described machines, as sums of what steps on simulated devices count."""
    from dpbench.report.page.inputs import PageInputs, parse_projections

    if list_machines:
        _list(output.as_json)
        return ExitCode.OK
    if workload is None or machine is None:
        missing = "WORKLOAD" if workload is None else "--machine"
        raise WrongInputError(f"{missing}: is missing; allowed: dpbench project WORKLOAD --machine NAME, or --list")
    machines = [load_machine(name) for name in split_list(machine)]
    with naming("variants"):
        chosen = list(dict.fromkeys(map(VariantId, split_list(variants))))
    _check(workload, math, {"loader": loader, "one-device": one_device})
    size = None if batch is None else _batch(batch)
    for described in machines:
        check_batch(described.devices if size is None else size, described.devices)
    for variant in chosen:
        check_variant(variant)
    check_output_folder("results", results)
    with waiting(f"counting a step of {workload} for each variant; about a minute, then cached"):
        ways = ways_of(chosen, machines)
        counted = count_for(workload, chosen, machines, ways)
    setting = Setting(
        math, ahead, None if one_device is None else one_device / 1e3, loader_items_per_s=loader, fitted=fitted()
    )
    projections = [
        project_machine(described, counted, workload, chosen, ways=machine_ways, batch=size, setting=setting)
        for described, machine_ways in zip(machines, ways, strict=True)
    ]
    content = projections_json(projections)
    show(content if output.as_json else projections_text(projections))
    with naming("machine"):
        page = PageInputs(projections=parse_projections(content))
    finish_page_beside(page, lambda: new_run_path(results, "project", ".html"), output)
    return ExitCode.OK


def _check(workload: str, math: str, numbers: Mapping[str, float | None]) -> None:
    with naming("workload"):
        parse_workload(workload)
    if math not in MATHS:
        raise WrongInputError(f"math: {math!r} is not allowed; allowed: {', '.join(MATHS)}")
    for name, value in numbers.items():
        if value is not None and not 1 / MOST <= value <= MOST:
            raise WrongInputError(f"{name}: {value} is not allowed; allowed: {_UNITS[name]}, {1 / MOST:g} to {MOST:g}")


def _batch(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and 0 < int(text) < 1 << 31):
        raise WrongInputError(f"batch: {quoted(text)} is not allowed; allowed: a number of items, such as 256")
    return int(text)


def _list(as_json: bool) -> None:
    machines = [load_machine(name) for name in machine_names()]
    if as_json:
        show({"machines": [{"name": machine.name, "devices": machine.devices} for machine in machines]})
    else:
        show_lines(
            f"{machine.name:24} {machine.devices} x {machine.device.name}, host {machine.host.name}"
            for machine in machines
        )
