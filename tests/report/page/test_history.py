"""Lines over commits and days, and what changed from the oldest to the newest."""

from datetime import datetime, timedelta

import pytest

from dpbench.errors import WrongInputError
from dpbench.records.record import Outcome
from dpbench.report.page.content import page_of
from dpbench.report.page.inputs import PageInputs
from dpbench.report.page.machines import by_environment
from dpbench.report.page.over_commits import check_history, histories, newest
from tests.report.page.making_commits import FASTER, PLANTED, SLOWER, commit, commit_records
from tests.report.page.making_page import gpu_records, lane_records

RECORDS = commit_records()
NAMES = [commit(number)[:10] for number in range(20)]


def names_of(records, dates=None):
    (history,) = histories(by_environment(records), dates or {}, with_days=False).values()
    return list(history.times)


def section(records=RECORDS, **fields):
    (machine,) = page_of(PageInputs(records, **fields)).machines
    return next((part for part in machine.sections if part.id == "m0-history"), None)


def test_commits_are_in_the_order_of_their_first_records():
    assert names_of(RECORDS[::-1]) == NAMES


def test_commits_are_in_the_order_of_their_dates_if_all_are_known():
    dates = {commit(number): float(-number) for number in range(20)}
    assert names_of(RECORDS, dates) == NAMES[::-1]
    del dates[commit(3)]
    assert names_of(RECORDS, dates) == NAMES


def lines_of(history):
    """Return each line's ratios of the panel of a section, by variant."""
    (rows,) = history.panels[-1].rows.values()
    return {name: [row["ratio"] for row in rows if row["series"] == name] for name in {row["series"] for row in rows}}


def test_each_line_begins_at_one_and_steps_where_the_change_was_planted():
    lines = lines_of(section())
    assert {name: own[0] for name, own in lines.items()} == dict.fromkeys(lines, 1.0)
    for name, factor in (("tuned", SLOWER), ("ddp", FASTER), ("naive", 1.0)):
        assert lines[name] == [pytest.approx(1 if place < PLANTED else factor, rel=0.06) for place in range(20)]


def test_sure_changes_from_the_oldest_to_the_newest_come_first_the_largest_before_others():
    history = section()
    assert history.answers[0].startswith(f"From {NAMES[0]} to {NAMES[-1]}: of 5 cases, 1 surely slower (by up to +")
    rows = history.panels[0].rows[""]
    assert [(row["variant"], row["verdict"]) for row in rows[:3]] == [
        *(("ddp", "faster"), ("tuned", "slower"), ("naive", "not decided")),
    ]


def test_the_order_of_the_commits_turns_the_ratios():
    forth, back = (
        lines_of(section(commit_records([2, 15]), commit_dates=dates))
        for dates in ({commit(2): 0.0, commit(15): 1.0}, {commit(2): 1.0, commit(15): 0.0})
    )
    assert {name: own[1] for name, own in forth.items()} == {
        name: pytest.approx(1 / own[1], rel=1e-4) for name, own in back.items()
    }


def test_one_round_is_no_sure_change():
    history = section(commit_records([2, 15], rounds=1))
    assert {row["verdict"] for row in history.panels[0].rows[""]} == {"not decided"}


def test_a_case_that_failed_in_the_newest_commit_is_counted_and_named_with_its_reason():
    failed = {"outcome": Outcome.OUT_OF_MEMORY, "reason": "too large", "samples_s": (), "metrics": None}
    records = [
        record.model_copy(update=failed)
        if record.environment.commit == commit(15) and record.case.variant == "tuned"
        else record
        for record in commit_records([2, 15])
    ]
    assert section(records).answers[0].endswith(" 1 case without times at one of them.")
    (machine,) = page_of(PageInputs(records)).machines
    (outcomes,) = (panel for shown in machine.sections for panel in shown.panels if panel.id == "outcomes")
    assert [(row["variant"], row["outcome"]) for row in outcomes.rows[""]] == [("tuned", "out of memory")]


def test_other_machines_keep_their_parts():
    page = page_of(PageInputs([*RECORDS, *gpu_records((64,), (2,))]))
    assert [bool(machine.sections[0].id.endswith("history")) for machine in page.machines] == [True, False]


def test_a_changed_tree_comes_after_its_commit():
    changed = [
        record.model_copy(update={"environment": record.environment.model_copy(update={"dirty": True}), "run": "x"})
        for record in commit_records([3])
    ]
    dates = {commit(number): float(number) for number in range(20)}
    names = names_of([*changed, *RECORDS], dates)
    assert names[2:5] == [NAMES[2], NAMES[3], f"{NAMES[3]} changed"]


def later(records, days):
    return [
        record.model_copy(
            update={
                "run": f"day {days}",
                "started_at": (datetime.fromisoformat(record.started_at) + timedelta(days=days)).isoformat(),
            }
        )
        for record in records
    ]


def test_days_of_one_commit_are_lines_only_on_request():
    records = [record for day in range(7) for record in later(lane_records(rounds=2), day)]
    assert section(records) is None
    history = section(records, with_days=True)
    assert history.title == "What changed over 7 days?"
    (rows,) = history.panels[-1].rows.values()
    assert {row["place"] for row in rows} == {f"2026-11-{20 + day}" for day in range(7)}
    assert {row["rounds"] for row in rows} == {2}
    machines = by_environment(records)
    assert newest(machines, histories(machines, {}, with_days=True)) == machines
    assert history.answers[0].startswith("From 2026-11-20 to 2026-11-26: ")


def test_one_commit_and_one_day_are_no_history():
    reason = r"--history: the records are of no commit, dpbench 0\.1\.0 on 2026-11-20"
    with pytest.raises(WrongInputError, match=reason):
        check_history(PageInputs(lane_records()))
    with pytest.raises(WrongInputError, match="--history: the records are of none"):
        check_history(PageInputs())
    check_history(PageInputs(RECORDS))
    check_history(PageInputs(later(lane_records(), 1) + lane_records()))
    check_history(PageInputs(later(commit_records([2]), 1) + commit_records([3])))


def test_too_many_rows_leave_settings_out_and_the_text_counts_them(monkeypatch):
    monkeypatch.setattr("dpbench.report.page.over_commits._MOST_ROWS", 150)
    other = [
        record.model_copy(update={"case": record.case.model_copy(update={"workload": "other/tiny"})})
        for record in commit_records()
    ]
    lines = section([*RECORDS, *other]).panels[-1]
    assert list(lines.rows) == [lines.first]
    assert "without a newer commit: 1 of 2 choices." in lines.text


def test_a_record_that_is_read_twice_counts_once():
    records = commit_records([2, 15])
    assert section([*records, *(record.model_copy() for record in records)]).panels == section(records).panels


def test_a_case_with_a_wrong_result_has_no_times():
    wrong = {"outcome": Outcome.WRONG_RESULT, "reason": "other gradients", "samples_s": (), "metrics": None}
    first, *rest = [record for record in commit_records([2, 15]) if record.case.variant == "tuned"]
    assert section([first.model_copy(update=wrong), *rest]) is None
