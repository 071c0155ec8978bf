"""Records over many commits, with a change that lasts."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random

from dpbench.records.record import Record
from tests.report.page.making_page import LANES, _record, made_case

FIRST_DAY = datetime(2026, 9, 1, 12, tzinfo=UTC)
PLANTED, SLOWER, FASTER = 12, 1.3, 0.7


def commit(number: int) -> str:
    return f"{number:04x}" * 10


def commit_records(
    commits: Sequence[int] = range(20), variants: Sequence[str] = ("naive", "floor", "tuned", "ddp"), rounds: int = 4
) -> list[Record]:
    """Return a record a day and commit. From commit 12 on tuned takes 1.3 times as long, and ddp 0.7 times."""
    random, records = Random(2), []
    for number in commits:
        clock = count()
        environment = LANES.model_copy(update={"commit": commit(number), "dirty": False})
        cases = [made_case("single", "cpu", 64, "mlp/small")]
        cases += [made_case(variant, "cpu*2", 64, "mlp/small") for variant in variants]
        for place in range(rounds):
            began = (FIRST_DAY + timedelta(days=number, seconds=20 * place)).isoformat()
            for case in cases:
                record = _record(case, place, environment, random, next(clock))
                factor = {"tuned": SLOWER, "ddp": FASTER}.get(str(case.variant), 1.0) if number >= PLANTED else 1.0
                samples_s = tuple(factor * sample_s for sample_s in record.samples_s)
                own = {"run": f"run {number}", "started_at": began, "samples_s": samples_s}
                records.append(record.model_copy(update=own))
    return records
