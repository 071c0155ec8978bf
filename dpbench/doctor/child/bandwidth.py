"""Copy rates of the host's memory and of each accelerator; a second or two in all."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import permutations
from statistics import median

import torch

from dpbench.doctor.findings import Finding, ok, unknown
from dpbench.measure.clock import Clock, make_clock

_BYTES = 256 * 2**20
_COPIES = 5


def examine_bandwidth(devices: Sequence[torch.device], size_bytes: int = _BYTES) -> list[Finding]:
    findings = [_host(size_bytes)]
    for device in devices:
        findings += _guarded(f"{device} bandwidth", partial(_with_host, device, size_bytes))
    for one, other in permutations(devices, 2):
        findings += _guarded(f"{one} to {other} bandwidth", partial(_between, one, other, size_bytes))
    return findings


def copy_seconds(destination: torch.Tensor, source: torch.Tensor, clock: Clock) -> float:
    times_s = []
    for _ in range(_COPIES + 1):
        start_s = clock()
        destination.copy_(source, non_blocking=True)
        times_s.append(clock() - start_s)
    return median(times_s[1:])


def _host(size_bytes: int) -> Finding:
    source, destination = (torch.ones(size_bytes, dtype=torch.uint8) for _ in range(2))
    seconds = copy_seconds(destination, source, make_clock([source.device]))
    return ok("host memory bandwidth", f"{_rate(size_bytes, seconds)} copied, by {torch.get_num_threads()} threads")


def _with_host(device: torch.device, size_bytes: int) -> Iterator[Finding]:
    host = torch.ones(size_bytes, dtype=torch.uint8).pin_memory()
    here, there = (torch.ones(size_bytes, dtype=torch.uint8, device=device) for _ in range(2))
    clock = make_clock([device])
    for what, destination, source in (("host to", here, host), ("to host from", host, here), ("within", there, here)):
        rate = _rate(size_bytes, copy_seconds(destination, source, clock))
        yield ok(f"{what} {device} bandwidth", f"{rate}{'' if what == 'within' else ', pinned'}")


def _between(one: torch.device, other: torch.device, size_bytes: int) -> Iterator[Finding]:
    source, destination = (torch.ones(size_bytes, dtype=torch.uint8, device=device) for device in (one, other))
    seconds = copy_seconds(destination, source, make_clock([one, other]))
    yield ok(f"{one} to {other} bandwidth", _rate(size_bytes, seconds))


def _guarded(what: str, measure: Callable[[], Iterator[Finding]]) -> list[Finding]:
    try:
        return list(measure())
    except RuntimeError as error:  # includes torch.OutOfMemoryError
        return [unknown(what, str(error).splitlines()[0])]


def _rate(size_bytes: int, seconds: float) -> str:
    return f"{size_bytes / seconds / 1e9:,.1f} GB/s"
