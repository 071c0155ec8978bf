"""Measure this machine, and write a file for `dpbench project --machine`: five numbers, and names of parts.toml.

    python -m benchmarks.machine_file this.toml

A part's efficiency is a share of the vendor's peak, which a measured rate includes already. So the file's peak is the
measured rate divided by that share, and a projection of the same operator gives the measured time.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from dpbench.engine.interpret import answer_in, ending, last_lines
from dpbench.engine.launch import Launcher, launch
from dpbench.errors import ReportedError, UnusableMachineError, WrongInputError
from dpbench.projection.machine import BOUNDS, UNITS
from dpbench.projection.machine_file import known_parts
from dpbench.text.files import replace_text
from dpbench.text.outputs import check_output
from dpbench.text.outside import one_line, quoted
from dpbench.text.validated import Frozen

FIELD = "machine-file"
MEASURE = [sys.executable, "-X", "faulthandler", "-m", "benchmarks.measure_machine"]
_TIMEOUT_S = 300.0
Pair = tuple[int, int]

_MOST_LINKS = 18  # of one GPU, up to NVLink 5: a GPU that seems to have more has them to a switch
_RING_SHARES = (0.6, 0.85, 1.0)
"""Our shares of a copy's rate for NCCL's rings that were not measured."""
_LANES_OF_THE_CPU = (
    "no accelerator: two lanes of the CPU were measured, which do not work beside the host as devices do; "
    "a projection on this file predicts nothing"
)


class MeasureRequest(Frozen):
    with_all_reduce: bool = True


class Measured(Frozen):
    """Rates are FLOP/s or bytes/s, one for each repeat; an empty series was not measured.

    `links` has NVML's entries, such as ``0-1 NV18``. `copies` went between the devices `copy_pair`.
    """

    date: str
    torch: str
    cpu_model: str
    names: tuple[str, ...]
    memory_bytes: int
    capability: tuple[int, int] | None
    links: tuple[str, ...] = ()
    is_peer: bool = True
    copy_pair: Pair | None = None
    products: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    memory: tuple[float, ...] = ()
    copies: tuple[float, ...] = ()
    gap_s: tuple[float, ...] = ()
    all_reduce: tuple[float, ...] = ()
    failures: dict[str, str] = Field(default_factory=dict)


class _Generation(NamedTuple):
    """Parts for devices of this compute capability or newer."""

    capability: tuple[int, int]
    efficiency: str
    board: str
    host: str
    pcie: str
    nvlink: str


_GENERATIONS = (
    _Generation((9, 0), "hopper", "server", "xeon-spr", "pcie5", "nvlink4"),
    _Generation((8, 1), "ampere-ada-desktop", "desktop", "desktop", "pcie4", "nvlink3"),
    _Generation((8, 0), "ampere-a100", "server", "epyc-rome", "pcie4", "nvlink3"),
    _Generation((7, 5), "turing-desktop", "desktop", "xeon-2018", "pcie3", "nvlink2"),
    _Generation((7, 0), "volta", "server", "xeon-2018", "pcie3", "nvlink2"),
    _Generation((0, 0), "pascal", "server", "xeon-v4", "pcie3", "nvlink1"),
)
_BY_NAME = {"H200": "hopper-h200", "L4": "ada-l4", "T4": "turing-t4"}


def ask_measured(*, launch: Launcher = launch, timeout_s: float = _TIMEOUT_S) -> Measured:
    """NCCL may hang or crash: then a second child measures without it. Raise UnusableMachineError."""
    for with_all_reduce in (True, False):
        end = launch(MEASURE, MeasureRequest(with_all_reduce=with_all_reduce).model_dump_json(), timeout_s)
        if answer := answer_in(end.record, Measured):
            return answer
    last = " / ".join(last_lines(end.tail)[-2:])
    raise UnusableMachineError(f"{FIELD}: measuring this machine failed: {ending(end)}: {last}")


def check_path(path: Path) -> None:
    """Raise WrongInputError."""
    if path.suffix != ".toml":
        raise WrongInputError(f"{FIELD}: {quoted(str(path))} is not allowed; allowed: a path that ends with .toml")
    check_output(FIELD, path)


def write_machine_file(path: Path, measured: Measured) -> None:
    """Raise UnusableMachineError or WrongInputError."""
    text = machine_text(measured, known_parts())
    try:
        replace_text(path, text)
    except OSError as error:
        reason = error.strerror or str(error)
        raise WrongInputError(f"{FIELD}: {quoted(str(path))}: {reason}; allowed: a file that can be written") from error


def machine_text(measured: Measured, parts: Mapping[str, Any]) -> str:
    """Raise UnusableMachineError if the product or the device's memory was not measured."""
    devices, links = len(measured.names), _nvlinks(measured)
    stamp = f"measured by benchmarks.machine_file {measured.date} on {measured.names[0]} with torch {measured.torch}"
    generation = generation_of(measured)
    rings_over_nvlink = devices > 1 and _joined(links) == set(range(devices))
    table: dict[str, Any] = {
        "host": generation.host,
        "devices": devices,
        "switches": [[device] for device in range(devices)],
        "sockets": [list(range(devices))],
        "peer": measured.is_peer,
    }
    if devices > 2 and sum(count for pair, count in links.items() if 0 in pair) > _MOST_LINKS:
        table["nvswitch_links"], links = 1, dict.fromkeys(links, 1)
    elif links:
        table["nvlinks"] = [[*pair, count] for pair, count in links.items()]
    table |= {"notes": notes_of(measured), **({"nccl": "tuning"} if devices > 1 else {})}
    table["device"] = _device(measured, parts, generation, stamp)
    table["links"] = _links(measured, parts, generation, links, stamp)
    if devices > 1:
        table["ring"] = _ring(measured, parts, table["links"], "nvlink" if rings_over_nvlink else "pcie", stamp)
    return f"# {one_line(stamp)}.\n{_toml(table)}"


def generation_of(measured: Measured) -> _Generation:
    nearest = next(row for row in _GENERATIONS if (measured.capability or (0, 0)) >= row.capability)
    words = measured.names[0].replace("-", " ").split()
    return nearest._replace(
        efficiency=next((part for word, part in _BY_NAME.items() if word in words), nearest.efficiency)
    )


def notes_of(measured: Measured) -> list[str]:
    devices = ", ".join(f"{measured.names.count(name)} x {name}" for name in dict.fromkeys(measured.names))
    parts = generation_of(measured)
    notes = [
        f"{devices}; {measured.cpu_model}; measured on {measured.date}",
        f"not measured: host, taken as {parts.host}, and efficiencies, taken as {parts.efficiency}, of parts.toml",
    ]
    if measured.capability is None:
        notes.insert(0, _LANES_OF_THE_CPU)
    if len(set(measured.names)) > 1:
        notes.append(f"the devices differ; all are described as the first one, {measured.names[0]}")
    notes += [f"not measured: {what}: {reason}" for what, reason in measured.failures.items()]
    return [one_line(note) for note in notes]


def _device(measured: Measured, parts: Mapping[str, Any], generation: _Generation, stamp: str) -> dict[str, Any]:
    share = parts["efficiency"][generation.efficiency]
    product, move = share["flop"]["matmul"]["mid"], share["byte"]["elementwise"]["mid"]
    of = f"over the share of efficiency.{generation.efficiency}"
    peaks = {
        name: _number(rates, "flops", "TFLOP/s", f"{stamp}: a product of matrices, {of}", 1 / product)
        for name, rates in measured.products.items()
    }
    bandwidth = _number(measured.memory, "bandwidth", "GB/s", f"{stamp}: an add in its memory, {of}", 1 / move)
    memory = _number([measured.memory_bytes], "bytes", "GiB", f"{stamp}: as the driver or the kernel reports it")
    needed = {
        "peak.float32": (peaks.get("float32"), "product"),
        "bandwidth": (bandwidth, "memory"),
        "memory": (memory, ""),
    }
    for field, (number, what) in needed.items():
        if number is None:
            reason = measured.failures.get(what, "no possible number was read")
            raise UnusableMachineError(f"{FIELD}: device.{field} was not measured: {one_line(reason)}")
    return {
        "memory": memory,
        "bandwidth": bandwidth,
        "gap": _number(measured.gap_s, "seconds", "us", f"{stamp}: between operators of one element") or "queued",
        "factor": generation.board,
        "efficiency": generation.efficiency,
        "peak": {name: peak for name, peak in peaks.items() if peak is not None},
    }


def _links(
    measured: Measured, parts: Mapping[str, Any], generation: _Generation, nvlinks: Mapping[Pair, int], stamp: str
) -> dict[str, Any]:
    known, pairs = parts["link"], len(measured.names) * (len(measured.names) - 1) // 2
    links: dict[str, Any] = {"pcie": generation.pcie}
    if nvlinks:
        links["nvlink"] = generation.nvlink
    if not measured.is_peer and len(nvlinks) < pairs:
        links["staged"] = "staged3" if generation.pcie == "pcie3" else "staged4"
    if measured.copy_pair is not None:
        count = nvlinks.get(measured.copy_pair)
        role = "nvlink" if count else "pcie" if measured.is_peer else "staged"
        source = f"{stamp}: copies between devices {measured.copy_pair[0]} and {measured.copy_pair[1]}, for one link"
        copies = _number(measured.copies, "bandwidth", "GB/s", source, 1 / (count or 1))
        if copies is not None:
            links[role] = {"bandwidth": copies, "latency": known[links[role]]["latency"]}
    return links


def _ring(
    measured: Measured, parts: Mapping[str, Any], links: Mapping[str, Any], hop: str, stamp: str
) -> dict[str, Any]:
    bus = _number(measured.all_reduce, "bandwidth", "GB/s", f"{stamp}: torch.cuda.nccl.all_reduce")
    if bus is None:
        link = links["nvlink" if hop == "nvlink" else "staged" if "staged" in links else "pcie"]
        one = (parts["link"][link] if isinstance(link, str) else link)["bandwidth"]
        rates = [share * one["mid"] * UNITS["bandwidth"]["GB/s"] for share in _RING_SHARES]
        bus = _number(rates, "bandwidth", "GB/s", "NCCL was not measured; 0.6 to 1 of one link between devices")
    return {"hop": hop, "bus_bandwidth": bus}


def _nvlinks(measured: Measured) -> dict[Pair, int]:
    links = {}
    for entry in measured.links:
        pair, _, kind = entry.partition(" ")
        one, other = sorted(map(int, pair.split("-")))
        if kind[:2] == "NV" and kind[2:].isdigit():
            links[one, other] = int(kind[2:])
    return links


def _joined(links: Iterable[Pair]) -> set[int]:
    reached, before = {0}, set[int]()
    while reached != before:
        before = set(reached)
        reached |= {device for pair in links for device in pair if reached & set(pair)}
    return reached


def _number(
    values: Iterable[float], dimension: str, unit: str, source: str, factor: float = 1.0
) -> dict[str, Any] | None:
    """Quantiles of 10, 50 and 90 %; None if no value is possible."""
    least, most = BOUNDS[dimension]
    kept = [value * factor for value in values if 2 * least < value * factor < most / 2]  # also when rounded
    if not kept:
        return None
    numbers = (float(f"{number / UNITS[dimension][unit]:.4g}") for number in np.quantile(kept, (0.1, 0.5, 0.9)))
    return {**dict(zip(("low", "mid", "high"), numbers, strict=True)), "unit": unit, "source": one_line(source)}


def _toml(table: Mapping[str, Any]) -> str:
    lines = [f"{key} = {_value(value)}" for key, value in table.items() if not isinstance(value, dict)]
    for key, value in table.items():
        if isinstance(value, dict):
            lines += ["", f"[{key}]", *(f"{name} = {_value(item)}" for name, item in value.items())]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_value(item)}" for key, item in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)


def main(path: Path) -> None:
    check_path(path)
    measured = ask_measured()
    write_machine_file(path, measured)
    print(
        f"{path}: written",
        *notes_of(measured),
        f"to project on it: dpbench project convnet/base --machine {path}",
        sep="\n",
    )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m benchmarks.machine_file FILE.toml")
    try:
        main(Path(sys.argv[1]))
    except ReportedError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
