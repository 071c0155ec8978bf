"""The pages of many commits, of two commits and of the gate's history in a real browser."""

import json

import pytest

from dpbench.report.page.content import page_of
from dpbench.report.page.document import write_page
from dpbench.report.page.history.commits import of_two_commits
from dpbench.report.page.inputs import PageInputs
from tests.report.page.chromium import CHROMIUM
from tests.report.page.conftest import serious_faults
from tests.report.page.making_commits import commit, commit_records
from tests.report.page.making_gates import gate_lines, hostile_gate_lines
from tests.report.page.making_page import HOSTILE, LANES, made_case

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.timeout(600),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium"),
    pytest.mark.xdist_group("chromium"),
]
NAMES = [
    *("history.html", "two.html", "gates.html"),
    *("hostile-history.html", "hostile-two.html", "hostile-gates.html"),
]


def hostile_commits():
    """Return commits whose other texts are hostile."""
    environment = {
        "hostname": HOSTILE[0] + HOSTILE[3],
        "cpu_model": HOSTILE[1],
        "dpbench": HOSTILE[5],
        "os": HOSTILE[6],
    }
    return [
        each.model_copy(
            update={
                "environment": each.environment.model_copy(update=environment),
                "case": made_case(str(each.case.variant), "+".join(each.case.devices), 64, HOSTILE[0] + HOSTILE[6]),
                "run": HOSTILE[4],
            }
        )
        for each in commit_records()
    ]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("history")
    for prefix, records in (("", commit_records()), ("hostile-", hostile_commits())):
        write_page(page_of(PageInputs(records)), folder / f"{prefix}history.html")
        two = of_two_commits(PageInputs(records), commit(2), commit(15))
        write_page(page_of(two), folder / f"{prefix}two.html")
    for prefix, lines in (("", gate_lines()), ("hostile-", hostile_gate_lines())):
        write_page(page_of(PageInputs(gates=lines)), folder / f"{prefix}gates.html")
    return folder


@pytest.fixture
def opened(tab, pages):
    """Return a function that opens a page and returns the tab."""

    def call(name, width=1400, **media):
        tab.media(**media)
        tab.width(width)
        tab.requests.clear()
        tab.messages.clear()
        tab.open(pages / name)
        return tab

    return call


def texts(tab, selector):
    return tab.run(f"[...document.querySelectorAll({json.dumps(selector)})].map((each) => each.textContent)")


@pytest.mark.parametrize(("name", "places"), [("history.html", 20), ("two.html", 2)])
def test_a_line_for_each_case_and_the_table_of_changes_are_drawn(opened, name, places):
    page = opened(name)
    chart = "#m0-history-ratios .chart svg"
    assert page.run(f"document.querySelectorAll('{chart} .mark-line path').length") == 5
    assert page.run(f"document.querySelectorAll('{chart} .mark-symbol path[transform]').length") >= 5 * places
    assert commit(2)[:10] in texts(page, f"{chart} .mark-text text")
    assert len(texts(page, "#m0-history-changes tbody tr")) == 5


def test_base_and_head_of_each_gate_are_drawn_and_slower_gates_are_ringed(opened):
    page = opened("gates.html")
    chart = "#gate0-ratios .chart svg"
    select = "document.querySelector('#gate0-ratios select')"
    assert page.run(f"{select}.selectedOptions[0].textContent") == "deep"
    assert texts(page, "#gate0-ratios .choice")[0].startswith("Benchmark ")
    page.run(f"{select}.value = 'b0'; {select}.dispatchEvent(new Event('change'))")
    page.wait(f"document.querySelectorAll('{chart} .mark-symbol path[stroke=\"var(--bad)\"]').length === 2")
    assert page.run(f"document.querySelectorAll('{chart} .mark-line path').length") == 2
    assert page.run(f"document.querySelectorAll('{chart} .mark-symbol path[transform]').length") >= 2 * 20 + 2
    assert len(texts(page, "#gate0-ratios tbody tr")) == 2 * 20


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_asked_for_and_no_text_of_a_record_runs(opened, pages, name):
    page = opened(name)
    assert page.requests == [(pages / name).as_uri()]
    assert page.messages == []
    assert page.run("window.injected") is None
    assert page.run("document.images.length") == 0
    assert page.run("document.scripts.length") == 3
    if name.startswith("hostile"):
        assert HOSTILE[0] in page.run("document.body.innerText")
        assert LANES.hostname not in page.run("document.body.innerText")


@pytest.mark.parametrize("name", NAMES)
def test_a_page_fits_a_phone(opened, name):
    assert opened(name, width=390).run("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("name", NAMES[:3])
def test_charts_fit_the_page(opened, name):
    """Only charts whose cells hold texts may be wider, and be scrolled."""
    page = opened(name, width=1000)
    assert page.run("document.querySelectorAll('.chart svg').length") > 0
    assert page.run("[...document.querySelectorAll('.chart')].every((each) => each.scrollWidth <= each.clientWidth)")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", NAMES[:3])
def test_an_accessibility_checker_finds_no_serious_fault(opened, axe, name, dark):
    assert serious_faults(opened(name, dark=dark), axe) == []
