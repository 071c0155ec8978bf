"""What a test may ask of the stand-in: lags, peer access, races, and counts of what the host did."""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import torch

COUNTERS = (
    "works",
    "copies",
    "pageable_copies",
    "events_recorded",
    "programs_events",
    "waits",
    "programs_waits",
    "record_streams",
    "event_queries",
    "host_waits",
    "mallocs",
    "graph_launches",
)
"""In the order of runtime/counters.h, which says what they mean."""
_TEXT_BYTES = 1 << 20
RaceError = RuntimeError
"""What the second of two racing operations raises. The text begins with the kind of race; `take_races` has it too."""


@cache
def _runtime() -> ctypes.CDLL:
    runtime = ctypes.CDLL("libcudart.so.13")
    runtime.stand_in_lag_device.argtypes = [ctypes.c_int, ctypes.c_double]
    runtime.stand_in_lag_stream.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_double]
    runtime.stand_in_counter.restype = ctypes.c_int64
    for function in (runtime.stand_in_take_races, runtime.stand_in_copies):
        function.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        function.restype = ctypes.c_size_t
    return runtime


def lag_device(device: int, seconds_per_task: float) -> None:
    """Slow each kernel and copy on the device by so many seconds."""
    _runtime().stand_in_lag_device(device, seconds_per_task)


def lag_stream(stream: torch.cuda.Stream, seconds_per_task: float) -> None:
    """Slow each kernel and copy in the stream by so many seconds."""
    _runtime().stand_in_lag_stream(stream.cuda_stream, stream.device_index, seconds_per_task)


@contextmanager
def lagging(lags: dict[int, float]) -> Iterator[None]:
    """Slow devices in a block; `lags` maps a device's index to seconds per kernel or copy."""
    for device, seconds in lags.items():
        lag_device(device, seconds)
    try:
        yield
    finally:
        for device in lags:
            lag_device(device, 0)


def allow_peers(are_allowed: bool) -> None:
    """Say whether devices may reach each other's memory. torch asks once for each pair, so call this first of all."""
    _runtime().stand_in_allow_peers(are_allowed)


def limit_peers(count: int) -> None:
    """Let a device have so many peers at most; CUDA's limit is 8. torch asks once for each pair."""
    _runtime().stand_in_limit_peers(count)


def raise_races(are_raised: bool) -> None:
    """Say whether the second of two racing operations raises RuntimeError. It does unless this is called."""
    _runtime().stand_in_raise_races(are_raised)


def take_races() -> list[str]:
    """Return the races found since the last call, each a line with both operations, streams and places."""
    return _lines(_runtime().stand_in_take_races)


def _lines(write: Callable[[ctypes.Array[ctypes.c_char], int], int]) -> list[str]:
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    length = write(text, _TEXT_BYTES)
    return text.raw[:length].decode(errors="replace").splitlines()


def counts() -> dict[str, int]:
    """Return what the host has done so far, by kind."""
    return {name: _runtime().stand_in_counter(index) for index, name in enumerate(COUNTERS)}


def copies() -> dict[str, tuple[int, int]]:
    """Return the number of copies so far and their bytes, by link, such as ``host->cuda:0``."""
    by_link = {}
    for line in _lines(_runtime().stand_in_copies):
        source, target, number, size_bytes = map(int, line.split())
        by_link[f"{_place(source)}->{_place(target)}"] = (number, size_bytes)
    return by_link


def _place(device: int) -> str:
    return "host" if device < 0 else f"cuda:{device}"
