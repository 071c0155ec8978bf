"""The wrapper's routes and ways of dispatch on all described machines of one size, beside the stock wrapper and DDP.

    .venv/bin/python -m benchmarks.projection.routes [--devices 8] [--workload convnet/base] [--items 32,64]

Prints a table in markdown for results/routes.md: how many times faster than one device each variant is, with the 90 %
interval. "auto" names the route that the wrapper takes there, with interleaved lanes. Its step time
follows over that of the fastest of our variants, and over that of the stock wrapper, both from common draws.
"""

import argparse
import platform
from collections.abc import Iterator, Sequence
from importlib.metadata import version

from dpbench.projection.described.machine import Machine
from dpbench.projection.described.machine_file import load_machine, machine_names
from dpbench.projection.project import Interval
from dpbench.projection.ranking import ProjectedRow, ratio_of
from dpbench.run.child.auto_choice import choice_on
from dpbench.run.project_all import project_machine, record_all
from dpbench.run.ways import described_links
from dpbench.sweep.variants import VariantId

INTERLEAVED = ("star", "chain")
TUNED = {
    "sequence, star": "tuned[dispatch=sequence,route=star]",
    "sequence, chain": "tuned[dispatch=sequence,route=chain]",
    **{f"interleaved, {route}": f"tuned[dispatch=interleaved,route={route}]" for route in INTERLEAVED},
}
COLUMNS = {
    "stock": VariantId("torch_dp"),
    **{name: VariantId(variant) for name, variant in TUNED.items()},
    "DDP": VariantId("ddp"),
}


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
    variants = list(COLUMNS.values())
    recorded = record_all(workload, variants, machines)
    yield f"| {workload} | items | " + " | ".join(COLUMNS) + " | auto | auto / best | auto / stock |"
    yield "|---|--:|" + "--:|" * len(COLUMNS) + "---|--:|--:|"
    for machine in machines:
        for count in items:
            found = project_machine(machine, recorded, workload, variants, batch=count * machine.devices)
            rows = dict(zip(COLUMNS, found.rows, strict=True))
            route = choice_on(described_links(machine)).route
            auto, best = rows[f"interleaved, {route}"], min((rows[name] for name in TUNED), key=_step_time_s)
            cells = [_cell(row.speed_up) for row in rows.values()]
            ratios = [_cell(_ratio(auto, other)) for other in (best, rows["stock"])]
            yield f"| {machine.name} | {count} | " + " | ".join([*cells, route, *ratios]) + " |"


def _step_time_s(row: ProjectedRow) -> float:
    assert row.projection is not None
    return row.projection.step_time_s.mid


def _ratio(one: ProjectedRow, other: ProjectedRow) -> Interval | None:
    if one.projection is None or other.projection is None:
        return None
    return ratio_of(one.projection, other.projection)


def _cell(found: Interval | None) -> str:
    return "-" if found is None else f"{found.mid:.2f} ({found.low:.2f} to {found.high:.2f})"


if __name__ == "__main__":
    main()
