"""The page that compares two commits."""

import pytest

from dpbench.records.record import Outcome
from dpbench.report.page.document import html
from dpbench.report.page.history.compared import CommitOptionError, compared_page, two_commits
from dpbench.report.page.inputs import PageInputs
from tests.report.page.making_commits import commit, commit_records
from tests.report.page.making_page import HOSTILE

OLD, NEW = commit(2), commit(15)
RECORDS = commit_records([2, 15])


def changed(records, of, **fields):
    """Return the records with other fields in the environment of one commit."""
    return [
        each.model_copy(update={"environment": each.environment.model_copy(update=fields)})
        if each.environment.commit == of
        else each
        for each in records
    ]


def panels(page):
    return {panel.id: panel for machine in page.machines for each in machine.sections for panel in each.panels}


def test_the_order_of_the_commits_turns_the_ratios():
    forth = two_commits(RECORDS, OLD, NEW).machines[0].effects[0]
    back = two_commits(RECORDS, NEW, OLD).machines[0].effects[0]
    assert forth.ratio.value == pytest.approx(1 / back.ratio.value)
    assert (forth.is_faster, back.is_slower) == (True, True)


def test_one_round_is_no_sure_change():
    (machine,) = two_commits(commit_records([2, 15], rounds=1), OLD, NEW).machines
    assert not any(each.is_sure for each in machine.effects)


def test_only_machines_with_both_commits_are_compared():
    other = changed(commit_records([15], rounds=3), NEW, hostname="other")
    found = two_commits([*RECORDS, *other], OLD, NEW)
    (machine,) = found.machines
    assert (machine.before.hostname, machine.after.hostname, found.of_unlike) == ("laptop", "laptop", False)


def test_records_of_a_changed_tree_are_left_out_and_counted():
    extra = changed([each.model_copy(update={"run": "x"}) for each in commit_records([15])], NEW, dirty=True)
    page = compared_page(PageInputs([*RECORDS, *extra]), OLD, NEW)
    assert "20 records of a changed working tree are left out." in page.notes
    with pytest.raises(CommitOptionError, match="all records of 000f000f00 are of a changed working tree"):
        two_commits(changed(RECORDS, NEW, dirty=True), OLD, NEW)


def test_a_case_that_failed_later_is_named_with_its_reason():
    failed = {"outcome": Outcome.OUT_OF_MEMORY, "reason": HOSTILE[0], "samples_s": (), "metrics": None}
    records = [
        each.model_copy(update=failed) if each.environment.commit == NEW and each.case.variant == "tuned" else each
        for each in RECORDS
    ]
    page = compared_page(PageInputs(records), OLD, NEW)
    (row,) = panels(page)["ended"].rows[""]
    assert (row["before"], row["after"], row["reason"]) == ("ok", "out of memory", HOSTILE[0])
    assert "<script>window" not in html(page)


def test_cases_of_one_commit_only_are_counted():
    page = compared_page(PageInputs([each for each in RECORDS if each.case.id != RECORDS[1].case.id]), OLD, NEW)
    assert not any("at one of the commits only" in note for note in page.notes)
    some = [each for each in RECORDS if not (each.case.id == RECORDS[1].case.id and each.environment.commit == NEW)]
    page = compared_page(PageInputs(some), OLD, NEW)
    assert "1 cases were measured at one of the commits only and are left out." in page.notes


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("abc", NEW, "'abc' is no commit of the records; allowed: 0002000200, 000f000f00"),
        ("000", NEW, "'000' begins 2 commits; allowed: 0002000200, 000f000f00"),
        ("", NEW, "'' is no commit of the records"),
        (OLD, OLD[:8], "are one commit; allowed: two"),
        ("\x1b[31m", NEW, "is no commit of the records"),
    ],
)
def test_a_wrong_commit_is_one_line(before, after, reason):
    with pytest.raises(CommitOptionError) as raised:
        two_commits(RECORDS, before, after)
    assert reason in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "\x1b" not in str(raised.value)


def test_a_file_that_is_read_twice_counts_once():
    again = [*RECORDS, *(each.model_copy() for each in RECORDS)]
    once, twice = two_commits(RECORDS, OLD, NEW), two_commits(again, OLD, NEW)
    assert [each.ratio for each in once.machines[0].effects] == [each.ratio for each in twice.machines[0].effects]
