"""The wrapper's routes and ways of dispatch on all described machines of one size, beside the stock wrapper and DDP.

    .venv/bin/python -m benchmarks.projection.routes [--devices 8] [--workload convnet/base] [--items 32,64]

Prints a table in markdown for results/routes.md: how many times faster than one device each variant is, with the 90 %
interval, and the step time of the last variant over that of the stock wrapper, from common draws.
"""

import argparse
import platform
from collections.abc import Iterator, Sequence
from importlib.metadata import version

from dpbench.projection.described.machine import Machine
from dpbench.projection.described.machine_file import load_machine, machine_names
from dpbench.projection.project import Interval
from dpbench.projection.ranking import ProjectedRow, ratio_of
from dpbench.run.project_all import project_machine, record_all
from dpbench.sweep.variants import VariantId

VARIANTS = tuple(
    map(
        VariantId,
        (
            "torch_dp",
            "tuned[dispatch=sequence,route=star]",
            "tuned[dispatch=sequence,route=chain]",
            "tuned[dispatch=interleaved,route=star]",
            "tuned[dispatch=interleaved,route=chain]",
            "ddp",
        ),
    )
)
HEADERS = ("stock", "sequence, star", "sequence, chain", "interleaved, star", "interleaved, chain", "DDP")
STOCK, BEST = 0, 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--workload", default="convnet/base")
    parser.add_argument("--items", default="32,64")
    options = parser.parse_args()
    machines = [machine for machine in map(load_machine, machine_names()) if _fits(machine, options.devices)]
    lines = list(table(machines, options.workload, [int(word) for word in options.items.split(",")]))
    print("\n".join(lines))
    torch, python = version("torch"), platform.python_version()
    print(f"\n(recorded with torch {torch} and Python {python}; projected, not measured)")


def _fits(machine: Machine, devices: int) -> bool:
    return machine.devices == devices and machine.ring is not None and machine.ring.machines == 1


def table(machines: Sequence[Machine], workload: str, items: Sequence[int]) -> Iterator[str]:
    """Yield the lines of a table: a row for each machine and number of items on each device."""
    recorded = record_all(workload, VARIANTS, machines)
    yield f"| {workload} | items | " + " | ".join(HEADERS) + " | time, interleaved chain / stock |"
    yield "|---|--:|" + "--:|" * (len(HEADERS) + 1)
    for machine in machines:
        for count in items:
            found = project_machine(machine, recorded, workload, VARIANTS, batch=count * machine.devices)
            ratio = _ratio(found.rows[BEST], found.rows[STOCK])
            cells = [_cell(row.speed_up) for row in found.rows]
            yield f"| {machine.name} | {count} | " + " | ".join(cells) + f" | {_cell(ratio)} |"


def _ratio(one: ProjectedRow, other: ProjectedRow) -> Interval | None:
    if one.projection is None or other.projection is None:
        return None
    return ratio_of(one.projection, other.projection)


def _cell(found: Interval | None) -> str:
    return "-" if found is None else f"{found.mid:.2f} ({found.low:.2f} to {found.high:.2f})"


if __name__ == "__main__":
    main()
