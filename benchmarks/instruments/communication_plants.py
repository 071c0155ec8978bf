"""Small scripts of DDP and FSDP2, and changes of them that the gate must name: `communication_plants.toml`.

    python -m benchmarks.instruments.communication_plants [--counts 50] > counts.jsonl

Each script is counted so many times in turns, and a line of JSON is written for each. A line says what differs from the
script's first count; nothing should. `tests/gate/test_communication_plants.py` judges the changes.
"""

import argparse
import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dpbench.analysis.communication import communication
from dpbench.gate.count_sides import compare_communication
from dpbench.jobs.count import count_scripts
from dpbench.records.script_record import ScriptJob

SCRIPTS = Path(__file__).with_name("communication")
STEPS = 12


@dataclass(frozen=True)
class Plant:
    """`counter` must be worse because of `line`; without one, no counter may be worse."""

    script: str
    name: str
    edits: list[list[str]]
    counter: str = field(default="")
    line: str = field(default="")

    def write(self, folder: Path) -> str:
        """Return the path of the changed script."""
        path = folder / self.script
        path.write_text(self.text())
        return str(path)

    def text(self) -> str:
        """Raises LookupError if a text to replace is not there."""
        text = (SCRIPTS / self.script).read_text()
        for old, new in self.edits:
            if old not in text:
                raise LookupError(f"{self.script} has no {old!r}")
            text = text.replace(old, new, 1)
        return text

    def line_number(self) -> int:
        return max(number for number, line in enumerate(self.text().splitlines(), 1) if line.strip() == self.line)


def plants() -> list[Plant]:
    return [Plant(**row) for row in tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["plant"]]


def repeated(counts: int) -> Iterator[dict[str, object]]:
    """Yield what differs from a script's first count."""
    jobs = [ScriptJob(script=str(path), steps=STEPS) for path in sorted(SCRIPTS.glob("*.py"))] * counts
    first = {}
    for job, record in zip(jobs, count_scripts(jobs), strict=True):
        sent = communication(record.ranks) if record.ranks else None
        before = first.setdefault(job.script, sent)
        changes, _ = compare_communication(job.script, before, sent) if before and sent else ((), ())
        differ = [change.counter for change in changes]
        yield {"script": Path(job.script).name, "reason": record.reason, "differ": differ}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counts", type=int, default=50)
    for line in repeated(parser.parse_args().counts):
        print(json.dumps(line))


if __name__ == "__main__":
    main()
