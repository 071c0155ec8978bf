"""The section of the gate's history, and the files that hold it."""

import re
from html import unescape

import pytest

from dpbench.gate.history import HistoryLine
from dpbench.records.row import to_line
from dpbench.records.store import StoreError
from dpbench.report.page.content import page_of
from dpbench.report.page.document import html
from dpbench.report.page.inputs import PageInputs, read_inputs
from tests.gate.making_history import line, times
from tests.report.page.making_commits import commit
from tests.report.page.making_gates import FAILED_AT, SLOWER_AT, gate_lines, hostile_gate_lines
from tests.report.page.making_page import LANES, lane_records

LINES = gate_lines()


def sections(lines, **fields):
    return page_of(PageInputs(gates=lines, **fields)).sections


def panel_of(lines):
    (section,) = sections(lines)
    return next(panel for panel in section.panels if panel.id == "ratios")


def rows_of(lines, benchmark):
    panel = panel_of(lines)
    return next(panel.rows[key] for key, name in panel.labels.items() if name == benchmark)


def short(number):
    return commit(number)[:10]


def moved(gate: HistoryLine, day: int) -> HistoryLine:
    return gate.model_copy(update={"started_at": f"2026-10-{day:02}T12:00:00Z"})


def test_both_sides_are_over_the_first_base_and_a_slower_gate_is_marked_at_head():
    rows = rows_of(LINES, "wide")
    first_s = LINES[0].benchmarks[0].base_step_s
    last = LINES[-1].benchmarks[0]
    assert [row["ratio"] for row in rows[-2:]] == [
        pytest.approx(step_s / first_s, rel=1e-4) for step_s in (last.base_step_s, last.head_step_s)
    ]
    assert [(row["series"], row["ratio"]) for row in rows[:1]] == [("base", 1.0)]
    assert rows[-1]["head_over_base"] == f"{last.ratio:.3f}"
    marked = [(row["series"], row["place"]) for row in rows if row["is_slower"]]
    assert marked == [("head", short(FAILED_AT + 1)), ("head", short(SLOWER_AT))]


def test_the_benchmark_that_changed_most_is_shown_first():
    panel = panel_of(LINES)
    assert panel.labels[panel.first] == "deep"


def test_one_benchmark_offers_no_choice_and_is_named():
    lines = [gate.model_copy(update={"benchmarks": gate.benchmarks[:1]}) for gate in LINES]
    assert panel_of(lines).title == "Step time of wide by gate: base and head"
    assert panel_of(LINES).title == "Step time by gate: base and head"


def test_versions_of_one_host_are_told_apart():
    newer = LANES.model_copy(update={"torch": "2.14.0"})
    titles = [section.title for section in sections([*LINES[:3], *gate_lines(3, newer)])]
    assert [title.rpartition(", ")[2] for title in titles] == ["torch 2.13.0+cpu?", "torch 2.14.0?"]


def test_gates_are_in_the_order_of_time_and_a_line_counts_once():
    places = [row["place"] for row in rows_of([*LINES[::-1], *LINES[:5]], "wide") if row["series"] == "head"]
    assert places == [gate.head_commit[:10] for gate in LINES]


def test_a_working_tree_and_a_commit_that_was_judged_twice_have_names_of_their_own():
    lines = [line("a" * 40, head, times("wide", 1, 1)) for head in (None, "b" * 40, "b" * 40, None)]
    lines = [moved(gate, day) for day, gate in enumerate(lines, start=1)]
    assert [row["place"] for row in rows_of(lines, "wide")[::2]] == [
        *("worktree", "b" * 10),
        *(f"{'b' * 10} (2)", "worktree (2)"),
    ]


def test_a_benchmark_whose_case_changed_has_a_line_for_each_case():
    earlier = times("wide", 1, 1, case="another case")
    lines = [moved(line("a" * 40, "b" * 40, earlier), 1), moved(line("b" * 40, "c" * 40, times("wide", 2, 2)), 2)]
    for name in ("wide, another case", "wide, case of wide"):
        assert [row["ratio"] for row in rows_of(lines, name)] == [1.0, 1.0]


def test_gates_without_times_say_so():
    (section,) = sections([line("a" * 40, "b" * 40)])
    assert (section.answers[1:], section.panels) == (["No gate has times."], [])


def test_the_newest_300_gates_are_drawn():
    panel = panel_of(gate_lines(340))
    assert "The newest 300 of 340 are drawn." in panel.text
    for rows in panel.rows.values():
        assert len(rows) == 600
        assert rows[0]["commit"] == short(40)


def test_more_benchmarks_than_have_room_are_counted():
    many = [
        gate.model_copy(update={"benchmarks": tuple(times(f"b{place}", 1, 1) for place in range(700))})
        for gate in LINES[:10]
    ]
    assert "Left out, without room or without a newer gate: 100 of 700 choices." in panel_of(many).text


def test_more_machines_than_have_room_are_counted():
    machines = [LANES.model_copy(update={"hostname": f"host {place}"}) for place in range(8)]
    page = page_of(PageInputs(gates=[gate for host in machines for gate in gate_lines(2, host)]))
    assert len(page.sections) == 6
    assert page.notes == ["The gate's history is shown of 6 of 8 machines."]


def test_hostile_texts_add_no_element_and_no_control_character():
    text = html(page_of(PageInputs(gates=hostile_gate_lines())))
    assert text.count("<script") == html(page_of(PageInputs(gates=LINES))).count("<script")
    assert "<img" not in text
    assert "<b>" not in text
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e]|\\\\u001b|\\\\u202e", text)


def written(folder, content, name="any name.txt"):
    path = folder / name
    path.write_bytes(content)
    return path


HISTORY = b"".join(map(to_line, LINES))


def test_a_history_is_known_by_the_kind_of_its_rows_and_stands_beside_records(tmp_path):
    records = lane_records(rounds=2)
    files = [written(tmp_path, HISTORY), written(tmp_path, b"".join(map(to_line, records)), "history.jsonl")]
    inputs = read_inputs(files)
    assert (list(inputs.gates), len(inputs.records), inputs.left_out) == (LINES, len(records), [])
    page = page_of(inputs)
    assert len(page.machines) == 1
    assert [section.id for section in page.sections] == ["gate0"]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"{\n", "is not JSON"),
        (b"[" * 10_000 + b"\n", "is not JSON"),
        (to_line(LINES[0]).replace(b'"schema":6', b'"schema":7'), "has schema 7, newer than this dpbench knows"),
        (to_line(LINES[0]).replace(b'"pass"', b'"\\u001b[31m"'), "is no gate: verdict: Input should be"),
        (re.sub(rb'"base_step_s":[^,]*', b'"base_step_s":1e308', to_line(LINES[0])), "benchmarks.0.base_step_s: Input"),
    ],
)
@pytest.mark.parametrize("place", [0, 3])
def test_a_bad_line_is_left_out_and_named(tmp_path, bad, reason, place):
    rest = [to_line(gate) for gate in LINES[1:6]]
    path = written(tmp_path, b"".join([*rest[:place], bad, bad, *rest[place:]]))
    inputs = read_inputs([path])
    assert list(inputs.gates) == LINES[1:6]
    (note,) = inputs.left_out
    assert note.startswith(f"{path}: line {place + 1} ")
    assert reason in note
    assert note.endswith("; 2 bad lines were left out")
    assert note.isprintable()
    assert note in unescape(html(page_of(inputs)))


@pytest.mark.parametrize(
    ("content", "gates", "notes"),
    [
        (b"", 0, []),
        (HISTORY[:-5], 19, ["a torn line of"]),
        (HISTORY[:400], 0, ["a torn line of 400 bytes at the end was dropped"]),
        (HISTORY[:30], 0, ["a torn line of 30 bytes at the end was dropped"]),
    ],
)
def test_an_empty_or_torn_history_is_no_error(tmp_path, content, gates, notes):
    inputs = read_inputs([written(tmp_path, content)])
    assert len(inputs.gates) == gates
    assert len(inputs.left_out) == len(notes)
    assert all(note in said for note, said in zip(notes, inputs.left_out, strict=True))
    assert ("There are no records." in html(page_of(inputs))) is (gates == 0)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(StoreError, match=f"^{tmp_path}: cannot be read: Is a directory$"):
        read_inputs([tmp_path])
