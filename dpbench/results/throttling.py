"""Find throttled records that are compared with unthrottled ones.

Their times differ because of the GPUs' clocks, not because of the variants. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dpbench.results.record import Record
from dpbench.sweep.case import Case


@dataclass(frozen=True)
class Throttling:
    """A throttled record, and an unthrottled record that is compared with it."""

    throttled: Record
    other: Record

    def __str__(self) -> str:
        return f"throttled: {_name(self.throttled)} was held back by its GPUs' clocks and {_name(self.other)} was not"


def find_throttling(records: Iterable[Record], groups: Iterable[Sequence[Case]]) -> Throttling | None:
    """Return the first such pair, or None. Cases of one group are compared with each other.

    Records without throttling data are in no pair.
    """
    firsts: dict[Case, dict[bool, Record]] = {}
    for record in records:
        is_throttled = None if record.metrics is None else record.metrics.is_throttled
        if is_throttled is not None:
            firsts.setdefault(record.case, {}).setdefault(is_throttled, record)
    return next(filter(None, (_pair(group, firsts) for group in groups)), None)


def _pair(cases: Sequence[Case], firsts: Mapping[Case, Mapping[bool, Record]]) -> Throttling | None:
    found = [firsts[case] for case in cases if case in firsts]
    throttled = next((each[True] for each in found if True in each), None)
    other = next((each[False] for each in found if False in each), None)
    return Throttling(throttled, other) if throttled and other else None


def _name(record: Record) -> str:
    return f"{record.case.id} (round {record.round})"
