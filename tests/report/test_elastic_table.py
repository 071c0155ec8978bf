"""The tables of an elastic run."""

import math
from io import StringIO

import pytest
from rich.console import Console

from dpbench.elastic.elastic_record import EventKind
from dpbench.report.elastic_table import elastic_json, elastic_text
from dpbench.results.record import Outcome
from tests.elastic.making import made_records


def text_of(records) -> str:
    console = Console(width=200, file=StringIO())
    console.print(elastic_text(records))
    return console.file.getvalue()


def ended(records, loss: float, digest: str, **fields):
    """Return the records with another end of the elastic run."""
    undisturbed, elastic = records
    events = [
        each.model_copy(update={"loss": loss, "digest": digest}) if each.kind is EventKind.DONE else each
        for each in elastic.events
    ]
    return [undisturbed, elastic.model_copy(update={"events": tuple(events), **fields})]


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
    reason = None if outcome is Outcome.OK else "the loss is another"
    records = ended(made_records(plan=plan), loss, digest, outcome=outcome, reason=reason)
    line = next(line for line in text_of(records).splitlines() if line.startswith(" elastic "))
    assert f" {shown} " in line
    run = elastic_json(records)["runs"][1]
    assert [run["same_end"], run["loss_difference"]] == in_json


def test_the_parts_of_an_outage_are_the_same_numbers_on_a_terminal_and_in_json():
    (outage,) = elastic_json(made_records())["runs"][1]["outages"]
    parts_s = {"noticing": 1.0, "stopping": 0.5, "rendezvous": 2.5, "start": 4.75, "restore": 1.5, "redone": 2.0}
    assert outage == {
        "fault": "kill@7:1",
        "outage_s": 12.5,
        "parts_s": parts_s,
        "unstamped_s": 0.25,
        "redone_steps": 2,
        "rounds": 1,
        "steps_per_s_before": outage["steps_per_s_before"],
        "steps_per_s_after": 1.0,
    }
    text = text_of(made_records())
    line = next(line for line in text.splitlines() if line.startswith(" kill@7:1 "))
    assert [float(cell) for cell in line.split()[1:10]] == [12.5, *parts_s.values(), 0.25, 2]
    assert "gone after" not in text


def test_a_join_has_no_rank_and_names_the_times_of_the_rendezvous():
    records = made_records(plan="join@7")
    events = [
        each.model_copy(update={"detail": "join", "rank": 0}) if each.kind is EventKind.FAULT else each
        for each in records[1].events
    ]
    records[1] = records[1].model_copy(update={"events": tuple(events)})
    assert elastic_json(records)["runs"][1]["outages"][0]["fault"] == "join@7"
    assert "gone after 6 s" in " ".join(text_of(records).split())
