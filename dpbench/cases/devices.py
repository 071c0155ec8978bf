"""Device lists as text: ``cpu*4``, ``cuda:0*2``, ``cuda:0+cuda:1``, ``sim*4``."""

import re

from dpbench.text.outside import quoted

_TERM = re.compile(r"(?P<kind>[a-z]+)(?::(?P<index>\d{1,6}))?(?:\*(?P<count>\d{1,6}))?", re.ASCII)
_ALLOWED = "devices are joined by '+', and '*n' repeats one, as in cpu*4, cuda:0*2, cuda:0+cuda:1, cuda*4"
MAX_LANES = 1024


def parse_devices(text: str) -> tuple[str, ...]:
    """``cpu*2`` and ``cuda:0*2`` repeat a device; ``cuda*2`` is cuda:0 and cuda:1. Raise ValueError, with what is
    allowed, for any other text.
    """
    lanes = tuple(lane for term in text.split("+") for lane in _parse_term(term.strip(), text))
    if len(lanes) > MAX_LANES:
        raise ValueError(f"{quoted(text)} has {len(lanes)} lanes; at most {MAX_LANES} are allowed")
    return lanes


def _parse_term(term: str, text: str) -> list[str]:
    match = _TERM.fullmatch(term)
    if match is None:
        raise ValueError(f"{quoted(text)} is not a device list; {_ALLOWED}")
    kind, index, count = match["kind"], match["index"], int(match["count"] or 1)
    if not 1 <= count <= MAX_LANES:
        raise ValueError(f"{quoted(text)} repeats a device {count} times; 1 to {MAX_LANES} are allowed")
    if kind == "cpu":
        if index not in (None, "0"):
            raise ValueError(f"{quoted(text)} names a cpu other than cpu; there is one, and cpu*n makes n lanes of it")
        return ["cpu"] * count
    if index is None:
        return [f"{kind}:{i}" for i in range(count)]
    return [f"{kind}:{int(index)}"] * count


def format_devices(lanes: tuple[str, ...]) -> str:
    """The text that `parse_devices` reads: ``cpu*2``, not ``cpu+cpu``."""
    runs: list[tuple[str, int]] = []
    for lane in lanes:
        if runs and runs[-1][0] == lane:
            runs[-1] = (lane, runs[-1][1] + 1)
        else:
            runs.append((lane, 1))
    return "+".join(lane if n == 1 else f"{lane}*{n}" for lane, n in runs)


def short_devices(lanes: tuple[str, ...]) -> str:
    """The shortest text that `parse_devices` reads: ``cuda*8`` for cuda:0 to cuda:7."""
    kind = lanes[0].partition(":")[0]
    numbered = tuple(f"{kind}:{i}" for i in range(len(lanes)))
    return f"{kind}*{len(lanes)}" if len(lanes) > 1 and lanes == numbered else format_devices(lanes)


def are_shared(lanes: tuple[str, ...]) -> bool:
    """Whether two lanes run on one device, so that `percent_of_limit` does not apply."""
    return len(set(lanes)) < len(lanes)
