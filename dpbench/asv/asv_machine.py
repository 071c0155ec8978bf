"""asv's machine file, version 1, with GPUs, driver, NCCL and torch added, which become selectors in asv's pages."""

import json
import os
import platform
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from dpbench.cases.machine_info import MachineInfo
from dpbench.errors import WrongInputError
from dpbench.text.files import replace_text
from dpbench.text.outside import one_line, quoted, read_json

DEFAULT_FILE = Path("~/.asv-machine.json")
_VERSION = 1
_NONE = "none"
_NAME = "a name for a folder, of printable characters"
_MOST_NAME_BYTES = 255  # of a file name in Linux

Machine = dict[str, str]
_MACHINES = TypeAdapter(dict[str, Machine])


def stamp_machine(path: Path, name: str, info: MachineInfo) -> Machine:
    """Update the machine's entry and return it. Raises WrongInputError."""
    if not _names_a_folder(name):
        raise WrongInputError(f"--machine: {name!r} is not a name for a machine; allowed: {_NAME}")
    machines = read_machines(path) if os.path.lexists(path) else {}
    machines[name] = {**_asv_defaults(info), **machines.get(name, {}), **_facts(info), "machine": name}
    text = json.dumps({**machines, "version": _VERSION}, indent=4, sort_keys=True)
    try:
        replace_text(path, text)
    except OSError as error:
        raise WrongInputError(f"{path}: cannot be written: {error.strerror}") from error
    return machines[name]


def read_machines(path: Path) -> dict[str, Machine]:
    """By machine name. Raises WrongInputError."""
    try:
        fields = read_json(path)
    except OSError as error:
        raise WrongInputError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise WrongInputError(f"{path}: is not JSON: {error}; allowed: asv's machine file") from error
    version = fields.pop("version", None) if isinstance(fields, dict) else None
    if version != _VERSION:
        raise WrongInputError(f"{path}: has version {version!r}; allowed: {_VERSION}")
    try:
        return _MACHINES.validate_python(fields)
    except ValidationError as error:
        raise WrongInputError(f"{path}: {_what_is_wrong(error)}; allowed: texts by name") from error


def _names_a_folder(name: str) -> bool:
    is_short = len(os.fsencode(name)) <= _MOST_NAME_BYTES if name.isprintable() else False
    return bool(name) and is_short and "/" not in name and name not in (".", "..", "version")


def _what_is_wrong(error: ValidationError) -> str:
    first = error.errors()[0]
    return one_line(f"{'.'.join(map(str, first['loc']))} is {quoted(first['input'])}: {first['msg']}")


def _facts(info: MachineInfo) -> Machine:
    """What asv does not collect."""
    gpus = [accelerator.name for accelerator in info.accelerators]
    facts = {
        "gpu": ", ".join(dict.fromkeys(gpus)),
        "num_gpu": str(len(gpus)),
        "driver": info.driver,
        "nccl": info.nccl,
        "torch": info.torch,
    }
    return {name: value or _NONE for name, value in facts.items()}


def _asv_defaults(info: MachineInfo) -> Machine:
    """What `asv machine --yes` would write."""
    return {
        "os": f"{platform.system()} {platform.release()}",
        "arch": platform.machine(),
        "cpu": info.cpu_model,
        "num_cpu": str(os.cpu_count()),
        "ram": str(info.memory_bytes),
    }
