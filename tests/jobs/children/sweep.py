"""A parent that measures two cases in three rounds.

Its records are lines of ``records.jsonl``, and it resumes.
"""

import os
import sys
from pathlib import Path

from dpbench.cases.case import Case
from dpbench.jobs.round import RoundProcesses
from dpbench.jobs.sweep import run
from dpbench.records.record import Record

ROUND = [sys.executable, str(Path(__file__).parent / "round.py")]
CASES = [Case(variant=name, workload="mlp/tiny", batch=8, devices=("cpu",), threads=1) for name in ("tuned", "naive")]


class Lines:
    def append(self, record: Record) -> None:
        with Path("records.jsonl").open("a") as file:
            file.write(record.model_dump_json(by_alias=True) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def keys(self) -> set[tuple[str, int]]:
        path = Path("records.jsonl")
        lines = path.read_text().splitlines() if path.exists() else []
        return {Record.model_validate_json(line).key for line in lines}


records, processes = Lines(), RoundProcesses(ROUND)
try:
    run(
        [(round_, case) for round_ in range(3) for case in CASES],
        run_id="r1",
        records=records,
        done=records.keys(),
        budget_s=1.0,
        launch=processes.launch,
    )
except KeyboardInterrupt:
    sys.exit(130)
finally:
    processes.end_round()
