"""`dpbench asv-machine`: this machine in the machine file of asv (airspeed velocity)."""

import platform
from pathlib import Path
from typing import Annotated

from dpbench.asv.asv_machine import DEFAULT_FILE, stamp_machine
from dpbench.cli.options import Json, option
from dpbench.cli.terminal import show, show_lines
from dpbench.errors import ExitCode, UnusableMachineError, WrongInputError
from dpbench.jobs.probe import ask_machine
from dpbench.text.outputs import check_output


def asv_machine(
    machine: Annotated[str | None, option("This machine's name in asv; the host's name by default.")] = None,
    machine_file: Annotated[Path, option("asv's machine file.", is_output=True)] = DEFAULT_FILE,
    as_json: Json = False,
) -> ExitCode:
    """Write this machine into asv's machine file, with its GPUs, driver, NCCL and torch."""
    path = _expanded(machine_file)
    check_output("--machine-file", path)
    info = ask_machine()
    if reason := info.why_unusable():
        raise UnusableMachineError(reason)
    entry = stamp_machine(path, platform.node() if machine is None else machine, info)
    if as_json:
        show(entry)
    else:
        show_lines([f"{path}:", *(f"  {name}: {text}" for name, text in entry.items())])
    return ExitCode.OK


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise WrongInputError(f"--machine-file: {str(path)!r}: {error}; allowed: a path") from error
