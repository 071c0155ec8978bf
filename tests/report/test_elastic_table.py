"""The tables of an elastic run."""

import math

import pytest

from dpbench.elastic.elastic_record import EventKind
from dpbench.records.record import Outcome
from dpbench.report.elastic_table import elastic_json, elastic_text
from tests.elastic.making import made_records
from tests.report.snapshots import assert_as_before, printed


@pytest.mark.parametrize("plan", ["kill@7:1", "leave@7:1", "join@7"])
def test_text_and_json_are_as_before(plan):
    records = made_records(plan=plan)
    if plan == "join@7":
        detail = {"detail": "join", "rank": 0}
        events = [
            event.model_copy(update=detail) if event.kind is EventKind.FAULT else event for event in records[1].events
        ]
        records[1] = records[1].model_copy(update={"events": tuple(events)})
    name = plan.partition("@")[0]
    assert_as_before(f"elastic/{name}.txt", printed(elastic_text(records), 200))
    assert_as_before(f"elastic/{name}.json", elastic_json(records))


@pytest.mark.parametrize(
    ("plan", "loss", "digest", "outcome", "expected"),
    [
        ("kill@7:1", 1.5, "ab", Outcome.OK, ("yes", True, 0.0)),
        ("kill@7:1", 1.5, "cd", Outcome.WRONG_RESULT, ("no", False, 0.0)),
        ("leave@7:1", 1.5, "cd", Outcome.OK, ("loss", False, 0.0)),
        ("leave@7:1", 1.5 + 2**-40, "cd", Outcome.OK, ("loss to 9e-13", False, 2**-40)),
        ("leave@7:1", 2.0, "cd", Outcome.WRONG_RESULT, ("no", False, 0.5)),
        ("leave@7:1", math.nan, "cd", Outcome.WRONG_RESULT, ("no", False, None)),
    ],
)
def test_how_equal_the_end_is(plan, loss, digest, outcome, expected):
    shown, *in_json = expected
    undisturbed, elastic = made_records(plan=plan)
    events = [
        event.model_copy(update={"loss": loss, "digest": digest}) if event.kind is EventKind.DONE else event
        for event in elastic.events
    ]
    reason = None if outcome is Outcome.OK else "the loss is another"
    ended = elastic.model_copy(update={"events": tuple(events), "outcome": outcome, "reason": reason})
    lines = printed(elastic_text([undisturbed, ended]), 200).splitlines()
    assert f" {shown} " in next(line for line in lines if line.startswith(" elastic "))
    run = elastic_json([undisturbed, ended])["runs"][1]
    assert [run["same_end"], run["loss_difference"]] == in_json
