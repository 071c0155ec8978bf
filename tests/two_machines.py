"""Two machines on one: network namespaces joined by a veth pair, and the processes in each.

    machine 0   namespace NAME-0   veth0 10.77.0.1  ┐
                                                    ├ the only link
    machine 1   namespace NAME-1   veth0 10.77.0.2  ┘

Making namespaces needs root, or the capabilities NET_ADMIN and SYS_ADMIN.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

RANKS_EACH = 2
_ADDRESSES = ("10.77.0.1", "10.77.0.2")
_PORT = 29400
_NAMESPACES = Path("/run/netns")
_GRACE_S = 30.0


class NoNamespacesError(RuntimeError):
    """This process may not make network namespaces; the text is the line of `ip`."""


@dataclass(frozen=True)
class Rank:
    """A process of a rank: the `dpbench` that the launcher started, or a child of it that imports torch."""

    pid: int
    rank: int
    what: str


@dataclass(frozen=True)
class Machine:
    """A namespace. `number` is 0 for the machine of rank 0."""

    name: str
    number: int

    @property
    def address(self) -> str:
        return _ADDRESSES[self.number]

    def torchrun(self, words: list[str], folder: Path, output: IO[bytes]) -> "subprocess.Popen[bytes]":
        """Start torchrun's agent of this machine; it starts `words` for each rank, as in ``-m dpbench sweep my.toml``.

        The agent's and the ranks' output goes to the file `output`.
        """
        agent = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", str(RANKS_EACH)]
        # Neither namespace finds the endpoint's machine by its host name, so `is_host` is given.
        place = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{_ADDRESSES[0]}:{_PORT}", "--rdzv-id", "soak"]
        own = ["--rdzv-conf", f"is_host={int(self.number == 0)}", "--local-addr", self.address, "--max-restarts", "0"]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            ["ip", "netns", "exec", self.name, *agent, *place, *own, *words],
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=output,
        )

    def pids(self) -> list[int]:
        """Return the processes in this namespace."""
        own = (_NAMESPACES / self.name).stat().st_ino
        return [int(folder.name) for folder in Path("/proc").glob("[0-9]*") if _inode(folder / "ns/net") == own]

    def ranks(self) -> list[Rank]:
        """Return the processes of ranks in this namespace, without the watchers of children."""
        processes = [(pid, _environment(pid), _command(pid)) for pid in self.pids()]
        return [
            Rank(pid, int(environment["RANK"]), "child" if "--parent-pid" in command else "dpbench")
            for pid, environment, command in processes
            if "RANK" in environment and "WORLD_SIZE" in environment
        ]


@contextmanager
def two_machines(name: str) -> Iterator[tuple[Machine, Machine]]:
    """Yield the machines. At the end of the block all processes in them are killed. Raises NoNamespacesError."""
    machines = (Machine(f"{name}-0", 0), Machine(f"{name}-1", 1))
    here, there = (machine.name for machine in machines)
    try:
        for machine in machines:
            _ip("netns", "add", machine.name)
        _ip("-n", here, "link", "add", "veth0", "type", "veth", "peer", "name", "veth0", "netns", there)
        for machine in machines:
            _ip("-n", machine.name, "addr", "add", f"{machine.address}/24", "dev", "veth0")
            for device in ("lo", "veth0"):
                _ip("-n", machine.name, "link", "set", device, "up")
        yield machines
    finally:
        for machine in machines:
            _remove(machine)


def wait_until_empty(machines: tuple[Machine, ...], within_s: float) -> dict[str, list[str]]:
    """Wait for all processes of the machines to end. Return the commands of those left, by machine."""
    deadline_s = time.monotonic() + within_s
    while True:
        left = {machine.name: [_command(pid) for pid in machine.pids()] for machine in machines}
        if not any(left.values()) or time.monotonic() > deadline_s:
            return {name: commands for name, commands in left.items() if commands}
        time.sleep(0.05)


def _remove(machine: Machine) -> None:
    if not (_NAMESPACES / machine.name).exists():
        return
    deadline_s = time.monotonic() + _GRACE_S
    while (pids := machine.pids()) and time.monotonic() < deadline_s:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    _ip("netns", "del", machine.name)


def _ip(*words: str) -> None:
    try:
        done = subprocess.run(["ip", *words], check=False, capture_output=True, text=True)
    except OSError as error:
        raise NoNamespacesError(f"ip: {error.strerror}") from error
    if done.returncode != 0:
        raise NoNamespacesError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def _environment(pid: int) -> Mapping[str, str]:
    fields = _words(pid, "environ")
    return dict(field.split("=", 1) for field in fields if "=" in field)


def _command(pid: int) -> str:
    return " ".join(_words(pid, "cmdline"))


def _words(pid: int, file: str) -> list[str]:
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []
