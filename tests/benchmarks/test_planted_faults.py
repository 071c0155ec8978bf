"""Each planted fault has one place in today's code, and the tests that should see it are there."""

import tomllib
from pathlib import Path

from benchmarks.planted_faults import Fault, planted

ROOT = Path(__file__).parents[2]


def test_each_fault_has_a_place_and_tests():
    rows = tomllib.loads((ROOT / "benchmarks" / "planted_faults.toml").read_text())["fault"]
    lost = []
    for row in rows:
        try:
            planted(Fault(**row), ROOT)
        except LookupError as error:
            lost.append(str(error))
        lost += [path for path in row["tests"] if not (ROOT / path.partition("::")[0]).exists()]
    assert lost == []
