"""The ranks of a case with one process per device."""

import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import psutil

from dpbench.engine.fork import fork

if TYPE_CHECKING:
    from dpbench.measure.ranks.team import Ranks, Team

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Rendezvous:
    """How a rank finds rank 0's store. `listener` is its open socket; None in other ranks and under a launcher."""

    rank: int
    size: int
    port: int
    address: str = LOOPBACK
    listener: socket.socket | None = None


def fork_ranks(size: int, work: Callable[[Rendezvous], object]) -> Rendezvous:
    """Fork ranks 1 to size-1, which call `work`; return rank 0's rendezvous. They die with this process."""
    listener = socket.create_server((LOOPBACK, 0))
    port = listener.getsockname()[1]
    pids = {rank: fork(partial(_as_rank, work, Rendezvous(rank, size, port), listener)) for rank in range(1, size)}
    for rank, pid in pids.items():
        threading.Thread(target=_fail_with, args=(pid, rank), daemon=True).start()
    return Rendezvous(0, size, port, listener=listener)


def _as_rank(work: Callable[[Rendezvous], object], place: Rendezvous, listener: socket.socket) -> None:
    listener.close()
    work(place)


def _fail_with(pid: int, rank: int) -> None:
    """Rank 0 would wait for a failed rank until the time limit, so end this process."""
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status != 0:
        print(f"rank {rank} ended with status {status}", file=sys.stderr, flush=True)  # noqa: T201
        os._exit(1)


def connector(rendezvous: Rendezvous | None) -> "Callable[[Sequence[str]], Team]":
    from dpbench.measure.ranks.team import Team

    return (lambda _: Team()) if rendezvous is None else (lambda devices: join_ranks(rendezvous, devices))


def interface_towards(address: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))  # sends nothing
        own_address = probe.getsockname()[0]
    return next(
        name for name, addrs in psutil.net_if_addrs().items() if any(addr.address == own_address for addr in addrs)
    )


def join_ranks(rendezvous: Rendezvous, devices: "Sequence[str]") -> "Ranks":
    """Set up torch.distributed: nccl for CUDA devices, gloo for CPUs; this rank's device becomes current."""
    # By default gloo takes the interface of the machine's name, which may not resolve.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", interface_towards(rendezvous.address))
    import torch
    from torch import distributed as dist

    from dpbench.measure.ranks.team import Ranks

    device, listener = torch.device(devices[rendezvous.rank]), rendezvous.listener
    store = dist.TCPStore(  # type: ignore[attr-defined]  # exported, but not by name
        rendezvous.address,
        rendezvous.port,
        rendezvous.size,
        is_master=rendezvous.rank == 0,
        wait_for_workers=False,
        master_listen_fd=None if listener is None else listener.detach(),
    )
    local = rendezvous.rank if device.index is None else device.index
    named: dict[str, object] = {"RANK": rendezvous.rank, "WORLD_SIZE": rendezvous.size, "LOCAL_RANK": local}
    named |= {"MASTER_ADDR": rendezvous.address, "MASTER_PORT": rendezvous.port}
    os.environ |= {name: str(value) for name, value in named.items()}  # users' wrappers read what torchrun sets
    os.environ.setdefault("LOCAL_WORLD_SIZE", str(rendezvous.size))
    if device.type != "cpu":
        torch.get_device_module(device).set_device(device)
    dist.init_process_group(
        dist.get_default_backend_for_device(device), store=store, rank=rendezvous.rank, world_size=rendezvous.size
    )
    return Ranks(rendezvous.rank, rendezvous.size)
