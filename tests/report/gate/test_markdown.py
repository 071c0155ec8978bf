"""The judgement as a comment, rendered from markdown."""

import re
from collections import Counter
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from dpbench.gate.judgement import Judgement, Revision
from dpbench.report.gate.forms import MARKER, gate_markdown
from dpbench.report.gate.verdict_tables import one_line
from dpbench.report.markdown import MAX_CHARACTERS, escaped, markdown_table
from dpbench.report.table import Column, Table
from tests.report.gate.making_gate import EVERY, EVIL, counter, drift, judged, time

OURS = {"h3", "h4", "p", "strong", "ul", "li", "code", "details", "summary"}
OURS |= {"table", "thead", "tbody", "tr", "th", "td"}
NO_WIDTH = "\u200b"


class Seen(HTMLParser):
    """A rendered page: its elements, its text, and the text of its cells."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.comments: list[str] = []
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self.folded = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        self.open.append(tag)
        assert all(name == "style" for name, _ in attrs), attrs
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_comment(self, data):
        self.comments.append(data)

    def handle_data(self, data):
        self.text += data
        if "details" in self.open:
            self.folded += data
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data


def seen(judgement: Judgement) -> Seen:
    return Seen(
        MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(gate_markdown(judgement))
    )


@pytest.mark.parametrize("name", EVERY)
def test_the_comment_begins_with_the_marker_and_has_it_once(name: str) -> None:
    text = gate_markdown(EVERY[name])
    assert text.startswith(f"{MARKER}\n**{EVERY[name].verdict.capitalize()}: ")
    assert text.count(MARKER) == 1
    assert seen(EVERY[name]).comments == [" dpbench gate "]


@pytest.mark.parametrize("name", EVERY)
def test_the_page_has_only_expected_elements_and_full_rows(name: str) -> None:
    page = seen(EVERY[name])
    assert not set(page.tags) - OURS
    assert not page.open
    assert page.tags["details"] == page.tags["strong"] == 1
    columns = {len(row) for row in page.rows}
    assert columns <= {5, 6, 9}
    judgement = EVERY[name]
    rows = sum(times.verdict != "pass" and times.ratio is not None for times in judgement.times)
    heads = bool(judgement.counters) + bool(judgement.times) + bool(rows)
    assert len(page.rows) == len(judgement.counters) + len(judgement.times) + rows + heads


@pytest.mark.parametrize("moving", range(6))
@pytest.mark.parametrize("lines", [0, 1, 2, 9, 20])
def test_what_is_not_folded_has_15_lines_at_most_and_what_is_left_out_is_folded(moving: int, lines: int) -> None:
    times = tuple(time(f"step {n}", "slower") for n in range(moving))
    drifts = tuple(drift(benchmark=f"drifting {n}") for n in range(lines))
    written = gate_markdown(judged("slower", times=times, drifts=drifts))
    above, folded = written.split("<details>")
    assert len(above.splitlines()) <= 15
    assert above.splitlines()[1].startswith("**Slower: ")
    for name in (*(row.benchmark for row in times[:3]), *(row.benchmark for row in drifts[:1])):
        assert name in above
    for name in (row.benchmark for row in (*times, *drifts)):
        assert name in written
    assert "took 4 min 32 s" in folded


@pytest.mark.parametrize(
    ("duration_s", "words"), [(30.2, "took 30 s"), (59.6, "took 1 min 0 s"), (272, "took 4 min 32 s")]
)
def test_a_gate_says_how_long_it_took(duration_s: float, words: str) -> None:
    assert words in gate_markdown(judged("pass").model_copy(update={"duration_s": duration_s}))


def test_quoted_text_is_shown_as_it_is_on_one_line() -> None:
    page = seen(EVIL)
    shown = page.text.replace(NO_WIDTH, "")
    assert f"Slower: {one_line(EVIL.why)}" in shown
    assert page.rows[1][0].replace(NO_WIDTH, "") == one_line(EVIL.why)
    assert "[31m" in shown
    assert "\x1b" not in gate_markdown(EVIL)


@given(st.text(st.sampled_from("@#:.-_*`~|\\<>&[]()!$^=+/ \n\tw10aGH"), max_size=40))
def test_no_text_becomes_a_mention_or_markup(text: str) -> None:
    source = gate_markdown(
        judged(why=f"x{text}", head=Revision(asked="a", commit="b" * 40, subject=text), notes=(text,))
    )
    page = Seen(MarkdownIt("commonmark", {"html": True, "linkify": False}).enable("table").render(source))
    assert not set(page.tags) - OURS
    assert f"Pass: {one_line(f'x{text}')}" in page.text.replace(NO_WIDTH, "")
    assert "@" not in page.text.replace(f"@{NO_WIDTH}", "")
    assert not re.search(r"@\w|#\d|GH-\d|www\.|://|:[a-z_]+:|:100:", page.text, re.IGNORECASE)
    assert not any(line.lstrip().startswith("::") for line in source.splitlines())  # GitHub's runner would obey


@pytest.mark.parametrize(
    ("text", "source"),
    [
        *(
            (text, text)
            for text in ("a_b at c/d-e.py:12: 9 worse", "+5.2 % [1.0, 1.1] -> 2!", "(a) = b > c; d? {'e'}", "--a")
        ),
        *(("- a", "\\- a"), ("+ a", "\\+ a"), ("-", "\\-"), ("---", "\\---"), ("===", "\\===")),
        *(("1. a", "1\\. a"), ("1)", "1\\)"), ("> a", "\\> a"), ("# a", "\\# a"), ("- [ ] a", "\\- \\[ ] a")),
        *(
            ("**a** ~b~", "\\*\\*a\\*\\* \\~b\\~"),
            ("__init__", "\\_\\_init\\_\\_"),
            ("`a`", "\\`a\\`"),
            ("a\\", "a\\\\"),
        ),
        *(("a|b", "a\\|b"), ("[a](b)", "[a\\](b)"), ("[a]: b", "[a\\]: b"), ("[a][b]", "[a\\][b]")),
        *(("<b>", "&lt;b>"), ("&lt;", "&amp;lt;"), ("&#64;a", "&amp;#|64;a"), ("$a$", "&#36;a&#36;")),
        *(
            ("www.a.b", "www|.a.b"),
            ("https://a.b", "https:|//a.b"),
            ("a@b.c", "a@|b.c"),
            ("x/y#1 GH-2 _www.a", "x/y#|1 GH-|2 \\_www|.a"),
        ),
        *((":tada: :100:", ":|tada: :|100:"), ("::error::a", "\\::|error::a"), ("##[a]", "##|[a]")),
    ],
)
def test_only_what_github_would_interpret_is_escaped(text: str, source: str) -> None:
    wanted = source if "\\|" in source else source.replace("|", NO_WIDTH)
    assert escaped(text) == wanted
    for before in ("- ", ""):
        page = Seen(MarkdownIt("commonmark", {"html": True}).enable("table").render(before + escaped(text)))
        assert set(page.tags) <= ({"ul", "li"} if before else {"p"})
        assert page.tags["ul"] <= 1
        assert page.text.replace(NO_WIDTH, "").strip() == text


@pytest.mark.parametrize("text", ["@", "#", "\U0001f600", "|", "a"])
def test_the_comment_never_exceeds_the_limit(text: str) -> None:
    huge = text * 5000
    many = judged(
        "slower",
        why=huge,
        base=Revision(asked=huge, commit="a" * 40, subject=huge),
        head=Revision(asked=huge, commit=None, subject=huge),
        counters=tuple(counter(benchmark=f"{n}{huge}", counter=huge) for n in range(300)),
        times=tuple(time(f"{n}{huge}", "slower", why=huge, cores=huge) for n in range(300)),
        drifts=tuple(drift(benchmark=f"{n}{huge}", since=huge) for n in range(300)),
        notes=(huge,) * 300,
    )
    written = gate_markdown(many)
    assert len(written) <= MAX_CHARACTERS
    assert written.rstrip().endswith("</details>")
    assert re.search(r"- \.\.\. and 2\d\d more\n", written)


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("a_b*2", "`a_b*2`"),
        ("  a", "&emsp;`a`"),
        ("a\x1b[1m\u2028b", "`a [1m b`"),
        ("a`b", "a\\`b"),
        ("a@b", f"a@{NO_WIDTH}b"),
    ],
)
def test_a_name_is_code_if_it_is_inert_as_code(name: str, cell: str) -> None:
    table = Table("", [Column("h", lambda row: row)], [name])
    assert list(markdown_table(table))[2] == f"| {cell} |"


def test_a_hundred_benchmarks_are_all_shown() -> None:
    page = seen(judged("slower", times=tuple(time(f"step {n}.", "slower") for n in range(100))))
    assert all(f"step {n}." in page.text for n in range(100))
    assert "97 more benchmarks that moved are below" in page.text
    assert page.text.count("more") == 1
