"""Strict reading of a machine's file: a wrong value is one line with file, field, value and what is allowed."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from dpbench.cases.explain import nearest, one_of
from dpbench.errors import WrongInputError
from dpbench.projection.described.machine import Quantity
from dpbench.text.outside import one_line, quoted

# By dimension, what one of each unit is in SI.
UNITS = {
    "bytes": {"B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30},
    "bandwidth": {"B/s": 1.0, "MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12},
    "flops": {"FLOP/s": 1.0, "GFLOP/s": 1e9, "TFLOP/s": 1e12},
    "seconds": {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0},
    "ratio": {"ratio": 1.0},
}
NUMBERS = ("low", "mid", "high")
_SOURCE = "a text that says where the number is from"
# By dimension, the least and the most in SI units: further from any machine than its numbers are uncertain.
BOUNDS = {
    "bytes": (1.0, 1e18),
    "bandwidth": (1e3, 1e18),
    "flops": (1e6, 1e24),
    "seconds": (1e-15, 1e3),
    "ratio": (1e-3, 1e3),
}


class MachineFileError(WrongInputError):
    """One line with the file, the field, the value and what is allowed."""


@dataclass
class Fields:
    """A table of a TOML file. Reading a key marks it as known; `refuse_others` raises for the rest.

    `place` is the table's name in the file, empty for the file itself.
    """

    file: str
    place: str
    table: dict[str, Any]
    read: set[str] = field(default_factory=set)

    def refuse(self, key: str, complaint: str) -> NoReturn:
        """Raise MachineFileError for a key of this table."""
        name = ".".join(part for part in (self.place, key) if part)
        raise MachineFileError(one_line(f"{self.file}: {name}: {complaint}"))

    def refuse_value(self, key: str, value: object, allowed: str, names: Iterable[str] = ()) -> NoReturn:
        """Raise MachineFileError for a key whose value is not allowed; `names` are for suggestions."""
        self.refuse(key, f"{quoted(value)} is not allowed{nearest(value, names)}; allowed: {allowed}")

    def refuse_others(self) -> None:
        """Raise MachineFileError if the table has a key that was not read."""
        for key in self.table:
            if key not in self.read:
                self.refuse(key, f"unknown key{nearest(key, self.read)}; allowed: {one_of(sorted(self.read))}")

    def has(self, key: str) -> bool:
        """Return whether the key is there."""
        self.read.add(key)
        return key in self.table

    def get(self, key: str, allowed: str) -> Any:
        """Return a key's value as it is in the file. Raise MachineFileError if it is missing."""
        if not self.has(key):
            self.refuse(key, f"missing; allowed: {allowed}")
        return self.table[key]

    def flag(self, key: str) -> bool:
        """Return true or false."""
        value = self.get(key, allowed := "true or false")
        return value if isinstance(value, bool) else self.refuse_value(key, value, allowed)

    def whole(self, key: str, low: int, high: int) -> int:
        """Return a whole number from `low` to `high`."""
        value = self.get(key, allowed := f"a whole number from {low} to {high}")
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        return self.refuse_value(key, value, allowed)

    def name(self, key: str, names: Iterable[str]) -> str:
        """Return one of the names."""
        names = tuple(names)
        value = self.get(key, allowed := one_of(names))
        return value if isinstance(value, str) and value in names else self.refuse_value(key, value, allowed, names)

    def rows(self, key: str, allowed: str) -> list[list[int]]:
        """Return a list of lists of whole numbers."""
        value = self.get(key, allowed)
        if not (isinstance(value, list) and all(isinstance(row, list) and all(map(_is_whole, row)) for row in value)):
            self.refuse_value(key, value, allowed)
        return [list(row) for row in value]

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts."""
        value = self.get(key, allowed := "a list of texts")
        if not (isinstance(value, list) and all(isinstance(text, str) and text.strip() for text in value)):
            self.refuse_value(key, value, allowed)
        return tuple(value)

    def below(self, key: str) -> "Fields":
        """Return a table in this table."""
        value = self.get(key, allowed := "a table")
        if not isinstance(value, dict):
            self.refuse_value(key, value, allowed)
        return Fields(self.file, ".".join(part for part in (self.place, key) if part), value)

    def quantity(self, key: str, dimension: str) -> Quantity:
        """Return a number with its bounds, in SI units."""
        units = UNITS[dimension]
        form = f"{{ low = , mid = , high = , unit = {one_of(map(repr, units))}, source = }}"
        value = self.get(key, form)
        if not isinstance(value, dict):
            self.refuse_value(key, value, form)
        entry = self.below(key)
        unit = units[entry.name("unit", units)]
        low, mid, high = (entry._number(number, dimension, unit) for number in NUMBERS)
        if not low <= mid <= high:
            written = ", ".join(f"{number} = {entry.table[number]}" for number in NUMBERS)
            self.refuse(key, f"{written} is not allowed; allowed: low <= mid <= high")
        source = entry.get("source", _SOURCE)
        if not isinstance(source, str) or not source.strip():
            entry.refuse_value("source", source, _SOURCE)
        entry.refuse_others()
        return Quantity(low, mid, high, source)

    def _number(self, key: str, dimension: str, unit: float) -> float:
        """Return a number, times `unit`, within the bounds of its dimension."""
        least, most = BOUNDS[dimension]
        value = self.get(key, allowed := f"a number from {least / unit:g} to {most / unit:g}")
        # compared before the product: an integer of TOML may exceed the largest float
        if isinstance(value, bool) or not isinstance(value, int | float) or not least / unit <= value <= most / unit:
            self.refuse_value(key, value, allowed)
        return value * unit


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
