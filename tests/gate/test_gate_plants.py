"""Each planted regression of `gate_plants.toml` is named by tier 0, and its opposite is not worse."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.instruments.gate_plants import ROOT, Code, plants
from dpbench.engine.launch import launch
from dpbench.gate.causes import find_blames
from dpbench.gate.count_sides import compare_records
from dpbench.gate.settings import read_settings
from dpbench.gate.sides import Sides
from dpbench.gate.tier0_cases import tier0_of, wrapper_jobs
from dpbench.jobs.count import run_jobs
from tests.sampling import sampled
from tests.simulated import needs_simulator
from tests.zygote import new_children

ALL = [plant for plant in plants() if plant.cases]
COUNTED = {plant.name: plant for plant in sampled(ALL, 16)}
TIER0 = tier0_of(read_settings(ROOT, None, ()), wrapper_jobs())
CASES = TIER0.jobs
BASE = Code()
pytestmark = pytest.mark.timeout(1200)  # some 40 counts of cases, or 150, by one child


@pytest.fixture(scope="module", autouse=True)
def _counted_in_new_children():
    with new_children():
        yield


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """By code and case, the record of each plant, of its opposite and of its base, all counted by one child."""
    folders, jobs = {}, {}
    for plant in COUNTED.values():
        for code in (plant.base, plant.plant, plant.opposite):
            key = repr(code)
            if key not in folders:
                folders[key] = commit(tmp_path_factory.mktemp("plant"), code)
            for case in plant.cases:
                jobs[key, case] = CASES[case].model_copy(update={"folder": str(folders[key])})
    return dict(zip(jobs, run_jobs(list(jobs.values())), strict=True))


def changes_of(records, plant, code):
    base, head = ({case: records[repr(side), case] for case in plant.cases} for side in (plant.base, code))
    assert {record.why for record in (*base.values(), *head.values()) if record.counts is None} == set()
    return [change for change in compare_records(base, head, TIER0) if change.is_worse]


def worse(records, plant, code):
    return {change.counter: (change.base, change.head) for change in changes_of(records, plant, code)}


@needs_simulator
@pytest.mark.parametrize("name", COUNTED)
def test_the_plant_is_named_and_its_opposite_is_not(records, name):
    plant = COUNTED[name]
    assert plant.counter in worse(records, plant, plant.plant)
    assert worse(records, plant, plant.opposite) == {}


def commit(folder, code):
    shutil.copytree(ROOT / "dpbench/parallel", folder / "dpbench/parallel")
    code.write(folder)
    return folder


@needs_simulator
@pytest.mark.parametrize("name", list(COUNTED)[::4])
def test_the_first_line_to_blame_is_one_that_the_plant_changed(records, tmp_path, name):
    plant, jobs = COUNTED[name], TIER0.jobs_by_benchmark()
    sides = Sides(commit(tmp_path / "base", plant.base), commit(tmp_path / "head", plant.plant), launch)
    old, new = (
        Counter(line.strip() for path in folder.rglob("*.py") for line in path.read_text().splitlines())
        for folder in (sides.base, sides.head)
    )
    blames = find_blames(changes_of(records, plant, plant.plant), jobs, sides)
    assert plant.counter in {blame.counter for blame in blames}
    assert [blame.counter for blame in blames if blame.causes[0].text.strip() not in new - old] == []


def test_each_plant_is_counted_or_timed():
    assert all(bool(plant.cases) is not bool(plant.timed) for plant in plants())
    assert {case for plant in plants() for case in plant.cases} <= CASES.keys()


@pytest.mark.parametrize("plant", [plant for plant in plants() if plant.timed], ids=lambda plant: plant.name)
def test_the_code_of_a_timed_plant_fits_the_wrapper(tmp_path, plant):
    for number, code in enumerate((plant.base, plant.plant, plant.opposite)):
        folder = commit(Path(tmp_path, str(number)), code)
        for path in (folder / "dpbench/parallel").glob("*.py"):
            compile(path.read_text(), str(path), "exec")
