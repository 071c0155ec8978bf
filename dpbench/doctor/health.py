"""`dpbench doctor`: what a child finds on this machine, and the output."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from dpbench.cases.case import Case
from dpbench.cases.machine_info import MachineInfo
from dpbench.cases.names import format_devices
from dpbench.cases.plan import default_lanes
from dpbench.cases.supports import why_unsupported
from dpbench.cases.variants import SCHEMES, VariantName
from dpbench.doctor.findings import UNKNOWN, Finding, Findings, Severity, unreliable
from dpbench.engine.interpret import ending, last_lines
from dpbench.engine.launch import Launcher, launch
from dpbench.engine.task import Task
from dpbench.report.table import list_of
from dpbench.text.outside import one_line
from dpbench.text.validated import Frozen

EXAMINE = Task("dpbench.doctor.child.examine", Findings)
_TIMEOUT_S = 120.0
_GIB = 2**30
_MOST_NOTES = 8
_MARKS = {Severity.OK: "ok", Severity.NOTE: "note", Severity.UNRELIABLE: "UNRELIABLE"}


def ask_health(*, launch: Launcher = launch, timeout_s: float = _TIMEOUT_S) -> tuple[Finding, ...]:
    """The child's findings; its crash or time-out is the only one."""
    ended = EXAMINE.run(Frozen(), timeout_s, launch)
    if ended.answer:
        return ended.answer.findings
    last = " / ".join(last_lines(ended.exit.tail)[-3:])
    return (
        unreliable("examination", ending(ended.exit), f"a device that cannot be examined cannot be trusted: {last}"),
    )


def why_unsupported_here(machine: MachineInfo) -> dict[VariantName, str | None]:
    """The reason why a variant cannot run on the default lanes, or None."""
    if machine.torch is None:
        return dict.fromkeys(SCHEMES, f"torch does not import: {machine.torch_error}")
    lanes = default_lanes(machine)
    return {
        name: why_unsupported(
            Case(variant=name, workload="mlp/tiny", batch=len(lanes), devices=lanes, threads=machine.cores), machine
        )
        for name in SCHEMES
    }


def doctor_json(machine: MachineInfo, findings: Sequence[Finding], warnings: list[str]) -> dict[str, Any]:
    """The key "box" holds the machine."""
    return {
        "box": machine.model_dump(mode="json"),
        "devices": list(default_lanes(machine)),
        "variants": [
            {"name": str(name), "runs": reason is None, "reason": reason}
            for name, reason in why_unsupported_here(machine).items()
        ],
        "findings": [finding.model_dump(mode="json") for finding in findings],
        "reliable": is_reliable(findings),
        "warnings": warnings,
    }


def doctor_text(machine: MachineInfo, findings: Sequence[Finding], *, with_details: bool = False) -> Group:
    """Without details, what is ok is counted, what is unknown is named, and advice is for what is unreliable."""
    if with_details:
        return Group(_facts(machine), _findings(findings), _variants(machine), Text(one_line(_verdict(findings))))
    lines = [_machine(machine), *_disturbing(findings), *_runs(machine)]
    return Group(*map(Text, map(one_line, lines)), Text(one_line(_verdict(findings)), style="bold"))


def _machine(machine: MachineInfo) -> str:
    devices = ", ".join(f"{device.device} {device.name}" for device in machine.accelerators) or "no accelerator"
    software = f"python {machine.python}, torch {machine.torch or 'that does not import'}"
    return f"{machine.cpu_model}, {machine.cores} cores, {machine.memory_bytes / _GIB:.1f} GiB; {software}; {devices}"


def _disturbing(findings: Sequence[Finding]) -> Iterator[str]:
    of = {severity: [finding for finding in findings if finding.severity is severity] for severity in Severity}
    for finding in of[Severity.UNRELIABLE]:
        yield f"UNRELIABLE {finding.what}: {finding.value}; {finding.advice}"
    notes = [finding for finding in of[Severity.NOTE] if not finding.value.startswith(UNKNOWN)]
    yield from (f"note {finding.what}: {finding.value}" for finding in notes[:_MOST_NOTES])
    unknown = [finding.what for finding in of[Severity.NOTE] if finding.value.startswith(UNKNOWN)]
    more = f"{len(notes) - _MOST_NOTES} more notes, " if len(notes) > _MOST_NOTES else ""
    asked = f"unknown: {', '.join(unknown)}; " if unknown else ""
    yield f"{asked}{more}{len(of[Severity.OK])} findings are ok; --details has all, with advice"


def _runs(machine: MachineInfo) -> Iterator[str]:
    reasons = why_unsupported_here(machine)
    names = ", ".join(name for name, reason in reasons.items() if reason is None)
    yield f"variants that run on {format_devices(default_lanes(machine))}: {names or 'none'}"


def is_reliable(findings: Sequence[Finding]) -> bool:
    return all(finding.severity is not Severity.UNRELIABLE for finding in findings)


def _findings(findings: Sequence[Finding]) -> Table:
    values = [f"{finding.value}; {finding.advice}" if finding.advice else finding.value for finding in findings]
    rows = [(finding.what, _MARKS[finding.severity], value) for finding, value in zip(findings, values, strict=True)]
    return list_of("what may disturb a measurement here", rows)


def _verdict(findings: Sequence[Finding]) -> str:
    faults = [finding.what for finding in findings if finding.severity is Severity.UNRELIABLE]
    return (
        f"Measurements are unreliable: {', '.join(faults)}."
        if faults
        else "Nothing here makes measurements unreliable."
    )


def _facts(machine: MachineInfo) -> Table:
    rows = [
        ("cpu", f"{machine.cpu_model}, {machine.cores} usable cores"),
        ("memory", f"{machine.memory_bytes / _GIB:.1f} GiB"),
        ("python", machine.python),
        ("torch", machine.torch or f"none: {machine.torch_error}"),
        *((gpu.device, f"{gpu.name}, {gpu.memory_bytes / _GIB:.1f} GiB") for gpu in machine.accelerators),
        *([] if machine.accelerators else [("accelerators", "none that torch can use")]),
        ("torch.distributed", ", ".join(machine.backends) or "no backend"),
        ("nvml", ", ".join(machine.nvml_gpus) or f"no GPU ({machine.nvml_error or 'none found'})"),
        ("default lanes", format_devices(default_lanes(machine))),
    ]
    return list_of("this machine", rows)


def _variants(machine: MachineInfo) -> Table:
    reasons = why_unsupported_here(machine).items()
    rows = [(str(name), "runs" if reason is None else f"does not run: {reason}") for name, reason in reasons]
    return list_of(f"variants on {format_devices(default_lanes(machine))}", rows)
