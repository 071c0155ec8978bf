"""`dpbench doctor --machine-file FILE`: measure this machine in a child, and write the file that describes it."""

import os
from pathlib import Path

from pydantic import ValidationError

from dpbench.doctor.describe import machine_text
from dpbench.doctor.measured import Measurements, MeasureRequest
from dpbench.errors import UnusableMachineError, WrongInputError
from dpbench.projection.described.machine_file import known_parts
from dpbench.results.files import replace_text
from dpbench.run.interpret import ending, last_lines
from dpbench.run.launch import Exit, Launcher, launch
from dpbench.run.start import child_command
from dpbench.sweep.machine_info import MachineInfo
from dpbench.sweep.outside import shown

MEASURE = child_command("dpbench.doctor.child.measure_machine")
_FIELD = "machine-file"
_TIMEOUT_S = 300.0
_MEASURED_TYPE = "cuda"


def check_path(path: Path) -> None:
    """Raise WrongInputError unless a machine file can be written to `path` and read from it again."""
    allowed = "a path that ends with .toml, in a folder that exists"
    if path.suffix != ".toml":
        raise WrongInputError(f"{_FIELD}: {shown(str(path))} is not allowed; allowed: {allowed}")
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        reason = "cannot be written to" if folder.is_dir() else "is no folder"
        raise WrongInputError(f"{_FIELD}: {shown(str(folder))} {reason}; allowed: {allowed}")
    if path.exists() and not path.is_file():
        raise WrongInputError(f"{_FIELD}: {shown(str(path))} is not a regular file; allowed: {allowed}")


def check_machine(machine: MachineInfo) -> None:
    """Raise UnusableMachineError unless there is an accelerator that can be measured."""
    if not machine.accelerators:
        none = "there is no accelerator that torch can use, so there is nothing to describe"
        because = f" ({machine.torch_error})" if machine.torch_error else ""
        raise UnusableMachineError(f"{_FIELD}: {none}{because}; lanes of the CPU cannot be projected")
    kind = machine.accelerators[0].device.partition(":")[0]
    if kind != _MEASURED_TYPE:
        raise UnusableMachineError(f"{_FIELD}: devices of type {kind} cannot be measured; allowed: {_MEASURED_TYPE}")


def ask_measurements(devices: int, *, launch: Launcher = launch, timeout_s: float = _TIMEOUT_S) -> Measurements:
    """Return the child's measurements.

    NCCL may hang or crash, so a child that did not survive several devices is started again without it. Raise
    UnusableMachineError if that fails too.
    """
    end = _measured(launch, timeout_s, with_collectives=True)
    if isinstance(end, Exit) and devices > 1:
        end = _measured(launch, timeout_s, with_collectives=False)
    if isinstance(end, Exit):
        last = " / ".join(last_lines(end.tail)[-2:])
        raise UnusableMachineError(f"{_FIELD}: measuring this machine failed: {ending(end)}: {last}")
    return end


def _measured(launch: Launcher, timeout_s: float, *, with_collectives: bool) -> Measurements | Exit:
    end = launch(MEASURE, MeasureRequest(with_collectives=with_collectives).model_dump_json(), timeout_s)
    try:
        return Measurements.model_validate_json(end.record)
    except ValidationError:
        return end


def write_machine_file(path: Path, found: Measurements) -> None:
    """Write the machine file, or leave what was there. Raise NothingMeasuredError or WrongInputError."""
    text = machine_text(found, known_parts())
    try:
        replace_text(path, text)
    except OSError as error:
        reason = error.strerror or str(error)
        raise WrongInputError(f"{_FIELD}: {shown(str(path))}: {reason}; allowed: a file that can be written") from error
