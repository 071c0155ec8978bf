"""From measurements to the text of a machine file, which `dpbench project --machine FILE` reads. Pure.

The file names no part of parts.toml, so a later version of dpbench reads the same numbers in it.
"""

from collections.abc import Mapping
from typing import Any

from dpbench.doctor.described_device import device_table, skew_of
from dpbench.doctor.described_host import host_table
from dpbench.doctor.described_links import Joined, joined
from dpbench.doctor.described_traffic import at_once_notes, broadcast_notes, link_tables, overlap_of, ring_table
from dpbench.doctor.measured import Measurements
from dpbench.doctor.numbers import entry, toml
from dpbench.sweep.outside import one_line


def machine_text(found: Measurements, parts: Mapping[str, Any]) -> str:
    """Return the machine file. `parts` are the tables of parts.toml.

    Raise NothingMeasuredError if a number is missing that nothing can stand for.
    """
    stamp = f"measured by dpbench doctor {found.date} on {found.names[0]} with torch {found.torch}"
    layout = joined(found)
    return f"# {one_line(title_of(found))}, {one_line(stamp)}.\n" + toml(
        {
            **_layout(layout),
            "overlap": overlap_of(layout, parts),
            "skew": entry(skew_of(found, stamp), "ratio"),
            "notes": notes_of(found),
            "links": link_tables(found, layout, stamp),
            "device": device_table(found, parts, stamp),
            "host": host_table(found, parts, stamp),
            **_collectives(found, layout, parts, stamp),
        }
    )


def title_of(found: Measurements) -> str:
    """Return devices and processor, in words."""
    names = dict.fromkeys(found.names)
    devices = ", ".join(f"{found.names.count(name)} x {name}" for name in names)
    return f"{devices}; {found.cpu_model}"


def notes_of(found: Measurements) -> list[str]:
    """Return what a reader of a projection on this machine should know."""
    notes = [f"{title_of(found)}; measured on {found.date}", *at_once_notes(found), *broadcast_notes(found)]
    if len(set(found.names)) > 1:
        notes.append(f"the devices differ; all are described as the first one, {found.names[0]}")
    notes += [f"not measured: {what}: {reason}" for what, reason in found.failures.items()]
    return [one_line(note) for note in notes]


def _layout(layout: Joined) -> dict[str, Any]:
    found: dict[str, Any] = {
        "devices": layout.devices,
        "switches": layout.switches,
        "sockets": layout.sockets,
        "peer": layout.peer,
    }
    if layout.has_switch:
        found["nvswitch_links"] = 1
    elif layout.nvlinks:
        found["nvlinks"] = [[a, b, count] for (a, b), count in layout.nvlinks.items()]
    return found


def _collectives(found: Measurements, layout: Joined, parts: Mapping[str, Any], stamp: str) -> dict[str, Any]:
    if layout.devices == 1:
        return {}
    return {"ring": ring_table(found, layout, stamp), "nccl": parts["nccl"]["tuning"]}
