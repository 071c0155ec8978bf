"""Each planted fault has one place in today's code, and the tests that should see it are there."""

import tomllib
from pathlib import Path

from benchmarks.instruments.planted_faults import ROOMS, Fault, planted

ROOT = Path(__file__).parents[2]


def test_each_fault_has_a_place_and_tests():
    rows = tomllib.loads((ROOT / "benchmarks" / "instruments" / "planted_faults.toml").read_text())["fault"]
    lost = []
    for row in rows:
        try:
            planted(Fault(**row), ROOT)
        except LookupError as error:
            lost.append(str(error))
        lost += [path for path in row["tests"] if not (ROOT / path.partition("::")[0]).exists()]
    assert lost == []


def test_the_rooms_that_faults_are_drawn_from_exist():
    assert [room for room in ROOMS if not list((ROOT / "dpbench" / room).glob("*.py"))] == []
    assert sum(ROOMS.values()) == 40
