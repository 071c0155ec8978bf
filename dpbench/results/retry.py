"""Failed records make room for new ones of the same case and round.

``(case.id, round)`` is unique in a run's file, so a record that is taken up again leaves it first. It is kept, for who
asks later what failed, at the end of a file beside it that no reader of records takes for one::

    sweep-box.jsonl            ok  ok  crashed  ok            ok  ok  ok  ...new ones
    sweep-box.jsonl.retried                         crashed

Stopped in between, the record is in both, or in the second alone, and its case is measured by the next call.
"""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from dpbench.results.record import Outcome, Record
from dpbench.results.store import Store


class Retry(StrEnum):
    """Which records are measured again."""

    FAILED = "failed"


def retried_path(store: Store) -> Path:
    return store.path.with_name(f"{store.path.name}.retried")


def take_failed_out(store: Store, among: Callable[[Record], bool]) -> tuple[Record, ...]:
    """The records `among` the store's that are not ok, which it has no longer. Raises StoreError; then it has them all.

    The store keeps other writers out already.
    """
    records = store.read().records
    failed = tuple(record for record in records if record.outcome is not Outcome.OK and among(record))
    if failed:
        with Store(retried_path(store)) as beside:
            for record in failed:
                beside.append(record)
        store.replace(record for record in records if record not in failed)
    return failed
