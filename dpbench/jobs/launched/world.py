"""Which rank this process is, from the environment variables of torchrun, srun or mpirun."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from dpbench.errors import WrongInputError

_LONGEST_PORT = 65535
_SLURM_PORTS = 20000
_NAMES = {
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    "srun": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
    "mpirun": (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
}


WITHOUT_LAUNCHER = "without a launcher, unset its variables, such as RANK and WORLD_SIZE"


class WorldError(WrongInputError):
    """`is_reported` is false in a process that is surely not rank 0, which prints it."""

    def __init__(self, line: str, *, is_reported: bool = True) -> None:
        super().__init__(line)
        self.is_reported = is_reported


@dataclass(frozen=True)
class World:
    """Rank 0's parent listens at `address` and `port`. `fault` is the line on wrong variables: such a process can still
    reach rank 0, which reports it once.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    address: str
    port: int
    fault: str | None = None

    @property
    def machines(self) -> int:
        return self.size // self.local_size

    @property
    def shape(self) -> str:
        return f"{self.size} ranks, {self.local_size} on each machine"


def read_world(environment: Mapping[str, str]) -> World | None:
    """None if no launcher started several processes: srun sets its size for the tasks of a step only.

    Raises WorldError if the variables do not say how to reach rank 0.
    """
    for launcher, names in _NAMES.items():
        if (environment.get(names[1]) or "1") != "1":
            return _world(launcher, names, environment)
        if launcher == "torchrun" and {names[1], names[2]} <= environment.keys():
            return None  # it started one process, even if srun started several torchruns
    return None


def _world(launcher: str, names: tuple[str, ...], environment: Mapping[str, str]) -> World:
    if launcher == "torchrun" and not {*names[2:], "MASTER_ADDR"} & environment.keys():
        left_over = f"{names[1]}={environment[names[1]]}"
        raise WorldError(f"{left_over} is set, and nothing else that {launcher} sets; allowed: {WITHOUT_LAUNCHER}")
    try:
        rank = _number(names[0], environment, launcher)
    except WorldError as error:
        raise WorldError(str(error), is_reported=environment.get(names[2], "0") == "0") from None
    try:
        size = _number(names[1], environment, launcher)
        address = environment.get("MASTER_ADDR") or _first_host(environment, launcher)
        port = _port(environment, launcher)
    except WorldError as error:
        raise WorldError(str(error), is_reported=rank == 0) from None
    try:
        local_rank, local_size = (_number(name, environment, launcher) for name in names[2:])
    except WorldError as error:
        return World(rank, size, 0, 1, address, port, fault=str(error))
    fault = None
    if not 0 <= local_rank < local_size or size % local_size or rank % local_size != local_rank or rank >= size:
        shown = ", ".join(f"{name}={environment[name]}" for name in names)
        fault = f"{shown}: ranks are not in order; allowed: equally many on each machine, machine by machine"
    return World(rank, size, local_rank, local_size, address, port, fault)


def _number(name: str, environment: Mapping[str, str], launcher: str) -> int:
    """Under srun, the tasks of each node are ``4`` or ``4(x2)``."""
    text = environment.get(name)
    if text is None:
        raise WorldError(f"{name}: is not set; allowed: the number that {launcher} sets")
    match = re.fullmatch(r"(\d{1,6})(?:\(x\d+\))?", text, re.ASCII)
    if match is None:
        raise WorldError(f"{name}: {text!r} is not allowed; allowed: a whole number, the same on each machine")
    return int(match[1])


def _first_host(environment: Mapping[str, str], launcher: str) -> str:
    hosts = environment.get("SLURM_STEP_NODELIST") if launcher == "srun" else None
    first = re.match(r"([^\[,\s]|\[[^\]]*\])+", hosts or "")
    if first is None:
        raise WorldError("MASTER_ADDR: is not set; allowed: the address of rank 0's machine")
    return re.sub(r"\[(\w+)[^\]]*\]", r"\1", first[0])  # node[07-09]-x is node07-x, node08-x and node09-x


def _port(environment: Mapping[str, str], launcher: str) -> int:
    text, job = environment.get("MASTER_PORT"), environment.get("SLURM_JOB_ID", "")
    if text is None and launcher == "srun" and job.isdecimal():
        return _SLURM_PORTS + int(job) % _SLURM_PORTS
    if text is None or not text.isdecimal() or not 0 < int(text) < _LONGEST_PORT:
        raise WorldError(f"MASTER_PORT: {text!r} is not allowed; allowed: a port from 1 to {_LONGEST_PORT - 1}")
    return int(text) + 1
