"""The records of two commits, for `dpbench report --commits`."""

import pytest

from dpbench.errors import WrongInputError
from dpbench.report.page.content import page_of
from dpbench.report.page.inputs import PageInputs
from dpbench.report.page.over_commits import of_two_commits
from tests.report.page.making_commits import commit, commit_records

OLD, NEW = commit(2), commit(15)
RECORDS = commit_records([2, 7, 15])


def changed(records, of, **fields):
    """Return the records with other fields in the environment of one commit."""
    return [
        record.model_copy(update={"environment": record.environment.model_copy(update=fields)})
        if record.environment.commit == of
        else record
        for record in records
    ]


@pytest.mark.parametrize(("before", "after"), [(OLD, NEW), (NEW[:6].upper(), OLD[:7])])
def test_two_commits_are_a_history_in_the_order_of_the_words(before, after):
    (machine,) = page_of(of_two_commits(PageInputs(RECORDS), before, after)).machines
    names = [{OLD[:6]: OLD, NEW[:6]: NEW}[word.lower()[:6]][:10] for word in (before, after)]
    assert machine.sections[0].answers[0].startswith(f"From {names[0]} to {names[1]}: of 5 cases, ")


def test_only_machines_with_both_commits_have_a_history():
    other = changed(commit_records([15], rounds=3), NEW, hostname="other")
    machines = page_of(of_two_commits(PageInputs([*RECORDS, *other]), OLD, NEW)).machines
    assert [(machine.name.split(":")[0], machine.sections[0].id) for machine in machines] == [
        *(("laptop", "m0-history"), ("other", "m1-ratios")),
    ]
    with pytest.raises(WrongInputError, match="no machine has records of both, which differ in hostname, torch;"):
        of_two_commits(PageInputs(changed(RECORDS, NEW, hostname="other", torch="2.14.1")), OLD, NEW)


def test_records_of_a_changed_tree_are_of_no_commit():
    extra = changed([record.model_copy(update={"run": "x"}) for record in commit_records([15])], NEW, dirty=True)
    both = of_two_commits(PageInputs([*RECORDS, *extra]), OLD, NEW)
    assert both.records == of_two_commits(PageInputs(RECORDS), OLD, NEW).records
    with pytest.raises(WrongInputError, match="is no clean commit of the records"):
        of_two_commits(PageInputs(changed(RECORDS, NEW, dirty=True)), OLD, NEW)


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("abc", NEW, "'abc' is no clean commit of the records; allowed: 0002000200, 0007000700, 000f000f00"),
        ("000", NEW, "'000' begins 3 commits; allowed: 0002000200, 0007000700, 000f000f00"),
        ("", NEW, "'' is no clean commit of the records"),
        (OLD, OLD[:8], "are one commit; allowed: two"),
        ("\x1b[31m", NEW, "is no clean commit of the records"),
    ],
)
def test_a_wrong_commit_is_one_line(before, after, reason):
    with pytest.raises(WrongInputError) as raised:
        of_two_commits(PageInputs(RECORDS), before, after)
    assert reason in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "\x1b" not in str(raised.value)
