"""Lines over commits and days, and where they changed for long."""

import sys
from datetime import datetime, timedelta

import pytest

from dpbench.report.page.content import page_of
from dpbench.report.page.history.records import check_history, histories, newest, version_name
from dpbench.report.page.inputs import PageInputError, PageInputs
from dpbench.report.page.machines import by_machine
from tests.report.page.making_commits import PLANTED, commit, commit_records
from tests.report.page.making_page import gpu_records, lane_records

RECORDS = commit_records()
NAMES = [commit(number)[:10] for number in range(20)]


def history_of(records, dates=None, *, with_days=False):
    (found,) = histories(by_machine(records), dates or {}, with_days=with_days)
    return found


def section(records=RECORDS, **fields):
    (machine,) = page_of(PageInputs(records, **fields)).machines
    return next((each for each in machine.sections if each.id == "m0-history"), None)


def test_commits_are_in_the_order_of_their_first_records():
    assert [each.name for each in history_of(RECORDS[::-1]).places] == NAMES


def test_commits_are_in_the_order_of_their_dates_if_all_are_known():
    dates = {commit(number): float(-number) for number in range(20)}
    assert [each.name for each in history_of(RECORDS, dates).places] == NAMES[::-1]
    del dates[commit(3)]
    assert [each.name for each in history_of(RECORDS, dates).places] == NAMES


def test_planted_changes_are_found_with_their_commit_and_no_other():
    found = {each.line.partition("|")[0]: each for each in history_of(RECORDS).changes}
    assert set(found) == {"tuned", "ddp"}
    assert {each.place.name for each in found.values()} == {NAMES[PLANTED]}
    assert found["tuned"].times == pytest.approx(1.3, abs=0.05)
    assert found["ddp"].times == pytest.approx(0.7, abs=0.05)


def test_without_asv_the_lines_are_drawn_and_the_page_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "asv.step_detect", None)
    found = section()
    assert found.answers == [
        "Lasting changes are not marked, because asv is not installed: pip install 'torch-dpbench[suites]'"
    ]
    assert [panel.id for panel in found.panels] == ["history"]


def test_other_machines_keep_their_parts():
    page = page_of(PageInputs([*RECORDS, *gpu_records((64,), (2,))]))
    assert [bool(machine.sections[0].id.endswith("history")) for machine in page.machines] == [True, False]


def test_a_changed_tree_comes_after_its_commit():
    changed = [
        record.model_copy(update={"environment": record.environment.model_copy(update={"dirty": True}), "run": "x"})
        for record in commit_records([3])
    ]
    dates = {commit(number): float(number) for number in range(20)}
    names = [each.name for each in history_of([*changed, *RECORDS], dates).places]
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
    found = section(records, with_days=True)
    assert found.title == "What changed over 7 days?"
    (rows,) = found.panels[-1].rows.values()
    assert {row["place"] for row in rows} == {f"2026-11-{20 + day}" for day in range(7)}
    assert {row["rounds"] for row in rows} == {2}
    machines = by_machine(records)
    assert newest(machines, histories(machines, {}, with_days=True)) == machines


def test_one_commit_and_one_day_are_no_history():
    with pytest.raises(PageInputError, match=r"--history: the records are of no commit, dpbench 0\.1\.0 on 2026-11-20"):
        check_history(PageInputs(lane_records()))
    with pytest.raises(PageInputError, match="--history: the records are of none"):
        check_history(PageInputs())
    check_history(PageInputs(RECORDS))


def test_too_many_rows_leave_settings_out_and_the_text_counts_them(monkeypatch):
    monkeypatch.setattr("dpbench.report.page.history.section._MOST_ROWS", 150)
    other = [
        record.model_copy(update={"case": record.case.model_copy(update={"workload": "other/tiny"})})
        for record in commit_records()
    ]
    lines = section([*RECORDS, *other]).panels[-1]
    assert len(lines.rows) == 1
    assert "1 settings have no room" in lines.text


def test_a_version_has_ten_digits_of_its_commit():
    environment = RECORDS[0].environment
    assert version_name(environment) == "0" * 10
    assert version_name(environment.model_copy(update={"dirty": True})) == "0000000000 changed"
