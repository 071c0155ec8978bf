"""When a disturbed run has the end of the undisturbed one."""

import math

import pytest

from dpbench.elastic.elastic_record import EventKind, RunScheme
from dpbench.elastic.outage import why_other_end
from dpbench.elastic.request import parse_plan
from dpbench.elastic.training_runs import elastic_job
from tests.elastic.making import SETTINGS, event

EXPECTED = event(9, EventKind.DONE, loss=1.5, digest="ab")


def settings(plan: str, dtype: str = "float64"):
    return SETTINGS.model_copy(update={"plan": parse_plan(plan), "dtype": dtype})


def why(loss: float, digest: str, plan: str, dtype: str = "float64") -> str | None:
    return why_other_end(event(9, EventKind.DONE, loss=loss, digest=digest), EXPECTED, settings(plan, dtype))


@pytest.mark.parametrize(
    ("loss", "digest", "plan", "dtype"),
    [
        (1.5, "ab", "kill@3:1", "float64"),
        (1.5 + 9e-11, "cd", "leave@3:1", "float64"),
        (1.5 - 9e-5, "cd", "leave@3:1,join@5", "float32"),
    ],
)
def test_ends_that_are_allowed(loss, digest, plan, dtype):
    assert why(loss, digest, plan, dtype) is None


@pytest.mark.parametrize(
    ("loss", "digest", "plan", "reason"),
    [
        (
            math.nextafter(1.5, 2),
            "ab",
            "kill@3:1",
            "the loss is 1.5; that of the undisturbed run is 1.5; the difference is 2.2e-16",
        ),
        (1.5, "cd", "kill@3:1", "the loss is equal, 1.5, but the parameters differ"),
        (1.5 + 2e-10, "cd", "leave@3:1", "the difference is 2.0e-10, and 1e-10 is allowed in float64"),
        (math.nan, "cd", "join@3", "the difference is inf"),
    ],
)
def test_ends_that_are_not(loss, digest, plan, reason):
    assert reason in why(loss, digest, plan)


@pytest.mark.parametrize(
    ("plan", "worlds", "nodes"), [("kill@3:1", (2, 2), (1, None)), ("join@3,leave@4:2,leave@5:0", (2, 3, 2, 1), (3, 1))]
)
def test_the_elastic_run_has_as_many_agents_as_the_plan_has_ranks(tmp_path, plan, worlds, nodes):
    found = settings(plan)
    assert found.worlds == worlds
    job = elastic_job(found, RunScheme.ELASTIC, tmp_path, tmp_path)
    assert (job.nodes, job.least_nodes) == nodes
    plain = elastic_job(found, RunScheme.UNDISTURBED, tmp_path, tmp_path)
    assert (plain.nodes, plain.least_nodes, plain.faults) == (1, None, ())
