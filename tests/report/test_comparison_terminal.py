"""What a terminal shows of a comparison: bars and colours, and at which width."""

import re
from io import BytesIO, StringIO, TextIOWrapper

import pytest
from rich.cells import cell_len
from rich.console import Console

from dpbench.analysis.compare_variants import compare
from dpbench.report.comparison import comparisons_text
from dpbench.report.table import Bar, Column, Table, bar_text
from tests.records.making import case, failed, ok

COLOUR = re.compile(r"\x1b\[[\d;]*3[0-7]")


def rounds(variant, *times_s):
    return [ok(case(variant), number, [time_s]) for number, time_s in enumerate(times_s)]


COMPARISONS = compare(
    [
        *rounds("naive", 0.020, 0.0201, 0.0199),
        *rounds("tuned", 0.010, 0.0101, 0.0099),
        *rounds("floor", 0.030, 0.0301, 0.0299),
        *rounds("ddp", 0.0204, 0.0190, 0.0214),
        *rounds("tuned[route=star]", 0.0196, 0.0186, 0.0210),
        failed(case("single", "cpu"), 0, "crashed", "signal 9"),
    ]
)


def printed(width, *, terminal=True, **environment):
    file = StringIO()
    Console(width=width, file=file, force_terminal=terminal, _environ={"TERM": "xterm-256color", **environment}).print(
        comparisons_text(COMPARISONS)
    )
    return file.getvalue()


def plain(text):
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def bars(text):
    """Return the bars by the first word of a line."""
    by_word = {}
    for line in filter(str.strip, plain(text).splitlines()):
        if bar := re.findall("[█▏▎▍▌▋▊▉]+", line):
            by_word[line.split()[0]] = bar
    return by_word


def test_a_wide_terminal_gets_a_bar_for_each_time():
    drawn = bars(printed(120))
    assert {name: len(drawn[name][0]) for name in ("floor", "naive", "tuned")} == {"floor": 24, "naive": 16, "tuned": 8}
    assert "single" not in drawn


@pytest.mark.parametrize(("width", "terminal"), [(80, True), (60, True), (120, False), (300, False)])
def test_a_narrow_terminal_and_a_file_get_none(width, terminal):
    text = printed(width, terminal=terminal)
    assert "█" not in text
    assert ("\x1b" in text) == terminal


@pytest.mark.parametrize("width", [40, 60, 80, 90, 110, 200])
def test_no_line_is_wider_than_the_terminal(width):
    assert max(cell_len(line.rstrip()) for line in plain(printed(width)).splitlines()) <= width


def test_forty_columns_keep_every_cell_whole():
    text = plain(printed(40))
    assert "20.0 [19.8, 20.2]" in text
    assert "more columns" in text


def test_colours_say_what_is_sure_and_no_color_removes_them():
    lines = {plain(line).split()[0]: line for line in printed(120).splitlines() if "█" in line}
    assert "\x1b[32m" in lines["tuned"]
    assert "\x1b[31m" in lines["floor"]
    assert not COLOUR.search(lines["naive"])
    assert not COLOUR.search(lines["ddp"])
    assert not COLOUR.search(lines["tuned[route=star]"])
    assert not COLOUR.search(printed(120, NO_COLOR="1"))
    assert "█" in printed(120, NO_COLOR="1")


def test_a_terminal_without_blocks_gets_number_signs():
    file = TextIOWrapper(BytesIO(), encoding="ascii", errors="replace")
    Console(width=80, file=file, force_terminal=True).print(
        Table("t", [Column("a", str), Column("b", lambda _: 1)], ["x"], bar=lambda _: Bar(0.5), bars_header="c")
    )
    file.seek(0)
    assert f"|{'#' * 12} " in plain(file.read())


@pytest.mark.parametrize(
    ("share", "text"),
    [(None, ""), (0.0, ""), (1e-9, "▏"), (0.5, "████"), (0.5625, "████▌"), (1.0, "████████"), (7.0, "████████")],
)
def test_a_bar_is_in_eighths_of_a_character(share, text):
    assert bar_text(share, 8, ascii_only=False) == text
