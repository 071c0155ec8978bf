"""Each change of `communication_plants.toml` is named with its line, and the opposites are not worse."""

import pytest

from benchmarks.instruments.communication_plants import SCRIPTS, STEPS, plants, repeated
from dpbench.analysis.communication import communication
from dpbench.gate.count_sides import compare_communication
from dpbench.jobs.count import count_scripts
from dpbench.records.script_record import ScriptJob
from tests.old_torch import needs_operations
from tests.sampling import sampled

pytestmark = needs_operations
VIEWS = "gradients are no views of their buckets"
ALL = {plant.name: plant for plant in plants()}
PLANTS = {name: ALL[name] for name in dict.fromkeys([VIEWS, *sampled(ALL, 10)])}


@pytest.fixture(scope="module")
def sent(tmp_path_factory):
    """By the name of a plant, or of a script as it is, what its ranks send; all counted by one child."""
    paths = {name: plant.write(tmp_path_factory.mktemp("plant")) for name, plant in PLANTS.items()}
    paths |= {path.name: str(path) for path in SCRIPTS.glob("*.py")}
    records = count_scripts([ScriptJob(script=path, steps=STEPS) for path in paths.values()])
    assert [f"{name}: {record.reason}" for name, record in zip(paths, records, strict=True) if record.reason] == []
    return {name: communication(record.ranks) for name, record in zip(paths, records, strict=True)}


@pytest.mark.parametrize("name", PLANTS)
def test_a_plant_is_named_with_its_line_and_an_opposite_is_not_worse(sent, name):
    plant = PLANTS[name]
    changes, blames = compare_communication(name, sent[plant.script], sent[name])
    lines = {
        blame.counter: {line for cause in blame.causes if cause.head > cause.base for line in cause.lines}
        for blame in blames
    }
    if plant.counter:
        assert plant.line_number() in lines[plant.counter]
    else:
        assert [change for change in changes if change.is_worse] == []


def test_equal_scripts_have_equal_counts():
    assert {(str(line["reason"]), *line["differ"]) for line in repeated(3)} == {("None",)}


def test_the_copies_that_end_a_backward_hide_no_bucket(sent):
    assert compare_communication("", sent["ddp.py"], sent[VIEWS]) == ((), ())
