"""Comparisons as markdown, rendered by a parser: texts from records stay texts."""

from markdown_it import MarkdownIt

from dpbench.analysis.compare_variants import compare
from dpbench.report.comparison import comparisons_markdown
from dpbench.report.markdown import MAX_CHARACTERS
from tests.records.making import case, failed, ok
from tests.report.gate.making_gate import HOSTILE
from tests.report.gate.test_markdown import NO_WIDTH, OURS, Seen
from tests.report.page.making_page import hostile_records

ALLOWED = OURS | {"h2"}


def seen(text):
    return Seen(MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(text))


def test_texts_of_records_are_neither_markup_nor_mentions():
    records = [
        *(ok(case("naive", workload=HOSTILE), number, [0.02]) for number in range(2)),
        *(ok(case("tuned", workload=HOSTILE), number, [0.01]) for number in range(2)),
        failed(case("ddp", workload=HOSTILE), 0, "crashed", HOSTILE),
    ]
    text = comparisons_markdown([(HOSTILE, compare(records))])
    page = seen(text)
    assert set(page.tags) <= ALLOWED
    assert page.comments == []
    assert not page.open
    assert "@" not in page.text.replace(f"@{NO_WIDTH}", "")
    assert "#1" not in page.text
    assert "\x1b" not in text
    assert {len(row) for row in page.rows} == {5}


def test_names_of_devices_and_phases_are_neither_markup_nor_mentions():
    page = seen(comparisons_markdown([("", compare(hostile_records(), allow_different=True))]))
    assert set(page.tags) <= ALLOWED
    assert not page.open
    assert "<img src=x" in page.text.replace(NO_WIDTH, "")


def test_what_does_not_fit_into_an_issue_is_counted():
    records = [ok(case("tuned", batch=batch), number, [0.01]) for batch in range(1, 401) for number in range(2)]
    text = comparisons_markdown([("", compare(records))])
    page = seen(text)
    assert len(text) <= MAX_CHARACTERS
    shown = sum(row[0] == "variant" for row in page.rows)
    assert f"{400 - shown} more settings do not fit into 65,536 characters." in page.text
    assert shown > 50
