"""Each planted regression of benchmarks/gate_plants.toml is named by tier 0, and its opposite is not worse."""

import shutil
from pathlib import Path

import pytest

from benchmarks.gate_plants import ROOT, Code, plants
from dpbench.gate.count_sides import compare_records
from dpbench.gate.tier0_cases import counted_cases, job_of
from dpbench.jobs.count import run_jobs
from tests.simulated import needs_simulator

COUNTED = {plant.name: plant for plant in plants() if plant.cases}
CASES = counted_cases([], of_the_wrapper=True)
BASE = Code()


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """By code and case, the record of each plant, of its opposite and of its base, all counted by one child."""
    folders, jobs = {}, {}
    for plant in COUNTED.values():
        for code in (plant.base, plant.plant, plant.opposite):
            key = repr(code)
            if key not in folders:
                folders[key] = tmp_path_factory.mktemp("plant")
                shutil.copytree(ROOT / "dpbench/parallel", folders[key] / "dpbench/parallel")
                code.write(folders[key])
            for case in plant.cases:
                jobs[key, case] = job_of(CASES[case]).model_copy(update={"folder": str(folders[key])})
    return dict(zip(jobs, run_jobs(list(jobs.values())), strict=True))


def worse(records, plant, code):
    base, head = ({case: records[repr(side), case] for case in plant.cases} for side in (plant.base, code))
    assert {record.why for record in (*base.values(), *head.values()) if record.counts is None} == set()
    return {change.counter: (change.base, change.head) for change in compare_records(base, head) if change.is_worse}


@needs_simulator
@pytest.mark.parametrize("name", COUNTED)
def test_the_plant_is_named_and_its_opposite_is_not(records, name):
    plant = COUNTED[name]
    assert plant.counter in worse(records, plant, plant.plant)
    assert worse(records, plant, plant.opposite) == {}


def test_each_plant_is_counted_or_timed():
    assert all(bool(plant.cases) is not bool(plant.timed) for plant in plants())
    assert {case for plant in plants() for case in plant.cases} <= CASES.keys()


@pytest.mark.parametrize("plant", [plant for plant in plants() if plant.timed], ids=lambda plant: plant.name)
def test_the_code_of_a_timed_plant_fits_the_wrapper(tmp_path, plant):
    for number, code in enumerate((plant.base, plant.plant, plant.opposite)):
        folder = Path(tmp_path, str(number))
        shutil.copytree(ROOT / "dpbench/parallel", folder / "dpbench/parallel")
        code.write(folder)
        for path in (folder / "dpbench/parallel").glob("*.py"):
            compile(path.read_text(), str(path), "exec")
