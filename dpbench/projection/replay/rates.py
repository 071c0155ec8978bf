"""How many seconds a unit of each rate takes on a machine, in each draw of its parameters. Pure.

==========================  ======================================================================
``flop``, kind              a floating-point operation of this kind of operator
``byte``, kind              a byte that it reads or writes
``gap``                     the time between two queued kernels
``host``, cost              a call on the host
``route``, from, to         a byte of a copy: the slowest link of its route
``latency``, from, to       a copy
``collective``, name, size  a collective of NCCL with so many bytes
``slowed``, rate...         the rate while a collective runs beside it
==========================  ======================================================================
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpbench.projection.described.machine import Kind, Machine
from dpbench.projection.described.nccl import collective_s
from dpbench.projection.replay.tasks import Rate

Array = NDArray[np.float64]
HOST = "host"
_TENSOR_KINDS = {Kind.CONVOLUTION}
"""The kinds that torch computes in TF32 by default, where the device can."""


@dataclass(frozen=True)
class Rates:
    """The seconds for a unit of each rate, with an entry for each draw. `values` are the draws of the parameters.

    `formats` names the number format of the kinds of operators that are not computed in float32.
    """

    machine: Machine
    values: Mapping[str, Array]
    formats: Mapping[Kind, str]

    def table(self, rates: Sequence[Rate]) -> Array:
        """Return a row for each rate."""
        return np.stack([self._seconds(*rate) for rate in rates])

    def _seconds(self, what: str, *names: str) -> Array:
        value, found = self.values, self.values["device.gap"]
        match what:
            case "host":
                found = value[f"host.{names[0]}"] * value["host.factor"]
            case "collective":
                found = collective_s(names[0], float(names[1]), self.machine, value.__getitem__)
            case "slowed":
                found = self._seconds(*names) * value["overlap"]
            case "flop":
                peak = value[f"device.{self.formats.get(Kind(names[0]), 'float32')}"]
                found = 1 / (peak * value[f"flop_efficiency.{names[0]}"]) * value["device.factor"]
            case "byte":
                found = 1 / (value["device.bandwidth"] * value[f"byte_efficiency.{names[0]}"]) * value["device.factor"]
            case "route":
                found = np.maximum.reduce([1 / value[f"link.{kind}.bandwidth"] for kind in self._kinds(*names)])
            case "latency":
                found = np.maximum.reduce([value[f"link.{kind}.latency"] for kind in self._kinds(*names)])
        return found

    def _kinds(self, source: str, destination: str) -> set[str]:
        return {self.machine.links[link] for link in self.machine.routes[end_of(source), end_of(destination)]}


def name_of(end: int | None) -> str:
    """Return the name of a copy's end in a rate."""
    return HOST if end is None else str(end)


def end_of(name: str) -> int | None:
    """Return the copy's end that `name_of` named."""
    return None if name == HOST else int(name)


def formats_of(machine: Machine, math: str) -> dict[Kind, str]:
    """Return the number format of each kind of operator that is not computed in float32.

    `math` is ``default``: as torch does, convolutions in TF32 where the device has it; ``float32``: nothing else; or
    ``tf32``: matrix products too.
    """
    if math == "float32" or "tf32" not in machine.device.peaks:
        return {}
    kinds = _TENSOR_KINDS if math == "default" else {Kind.CONVOLUTION, Kind.MATMUL, Kind.BATCHED_MATMUL}
    return dict.fromkeys(kinds, "tf32")
