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


def test_a_history_without_a_change_says_so():
    (answer,) = section(commit_records(range(PLANTED))).answers
    assert answer == "No lasting change of 10 % or more in 5 cases over 12 commits."


def test_fewer_than_six_commits_say_so():
    (answer,) = section(commit_records(range(10, 14))).answers
    assert answer == "There are too few commits to find lasting changes: 4, and 6 are needed."


def test_without_asv_the_lines_are_drawn_and_the_page_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "asv.step_detect", None)
    found = section()
    assert found.answers == [
        "Lasting changes are not marked, because asv is not installed: pip install 'torch-dpbench[suites]'"
    ]
    assert [panel.id for panel in found.panels] == ["history"]


def test_the_section_has_sentences_a_table_and_marked_rows():
    found = section()
    assert found.title == "What changed over 20 commits?"
    assert len(found.answers) == 2
    assert found.answers[1].startswith(f"tuned is slower since {NAMES[PLANTED]} of 2026-09-13: 32.")
    changes, lines = found.panels
    assert [row["variant"] for row in changes.rows[""]] == ["ddp", "tuned"]
    (rows,) = lines.rows.values()
    assert len(rows) == 5 * 20
    assert all(row["low"] <= row["ms"] <= row["high"] for row in rows)
    assert {(row["place"], row["series"], row["kind"]) for row in rows if row["kind"]} == {
        (NAMES[PLANTED], "tuned", "slower"),
        (NAMES[PLANTED], "ddp", "faster"),
    }


def test_charts_are_of_the_newest_commit_and_the_table_has_all():
    page = page_of(PageInputs(RECORDS))
    (machine,) = page.machines
    assert NAMES[-1] in machine.name
    assert len(page.table.rows) == 20 * 5
    assert (
        "The charts are of the newest commit; the first chart and the table at the end have all commits." in page.notes
    )


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
