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

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpbench.projection.described.machine import Kind, Machine
from dpbench.projection.described.nccl import collective_s
from dpbench.projection.replay.tasks import Rate

Array = NDArray[np.float64]
HOST = "host"
_TENSOR_KINDS = {Kind.CONVOLUTION}
"""The kinds that torch computes in TF32 by default, where the device can."""


class Rates:
    """The seconds for a unit of each rate, with an entry for each draw. `values` are the draws of the parameters.

    `formats` names the number format of the kinds of operators that are not computed in float32.
    """

    def __init__(self, machine: Machine, values: Mapping[str, Array], formats: Mapping[Kind, str]) -> None:
        self._machine, self._values, self._formats = machine, values, formats

    def table(self, rates: Sequence[Rate]) -> Array:
        """Return a row for each rate."""
        return np.stack([self._of(rate) for rate in rates])

    def _of(self, rate: Rate) -> Array:
        what, *names = rate
        return self._RULES[what](self, names)

    def _device_time(self, seconds: Array) -> Array:
        return seconds * self._values["device.factor"]

    def _flop(self, names: Sequence[str]) -> Array:
        number_format = self._formats.get(Kind(names[0]), "float32")
        peak = self._values[f"device.{number_format}"] * self._values[f"flop_efficiency.{names[0]}"]
        return self._device_time(1 / peak)

    def _byte(self, names: Sequence[str]) -> Array:
        return self._device_time(1 / (self._values["device.bandwidth"] * self._values[f"byte_efficiency.{names[0]}"]))

    def _host(self, names: Sequence[str]) -> Array:
        return self._values[f"host.{names[0]}"] * self._values["host.factor"]

    def _route(self, names: Sequence[str]) -> Array:
        slowest: Array = np.maximum.reduce([1 / self._values[f"link.{kind}.bandwidth"] for kind in self._kinds(names)])
        return slowest

    def _latency(self, names: Sequence[str]) -> Array:
        longest: Array = np.maximum.reduce([self._values[f"link.{kind}.latency"] for kind in self._kinds(names)])
        return longest

    def _collective(self, names: Sequence[str]) -> Array:
        return collective_s(names[0], float(names[1]), self._machine, self._values.__getitem__)

    def _slowed(self, names: Sequence[str]) -> Array:
        return self._of(tuple(names)) * self._values["overlap"]

    def _gap(self, _: Sequence[str]) -> Array:
        return self._values["device.gap"]

    _RULES: ClassVar[Mapping[str, Callable[["Rates", Sequence[str]], Array]]] = {
        "flop": _flop,
        "byte": _byte,
        "gap": _gap,
        "host": _host,
        "route": _route,
        "latency": _latency,
        "collective": _collective,
        "slowed": _slowed,
    }

    def _kinds(self, names: Sequence[str]) -> list[str]:
        source, destination = (end_of(name) for name in names)
        by_name = {link.name: link.kind for link in self._machine.links}
        return [by_name[link] for link in self._machine.routes[source, destination]]


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
