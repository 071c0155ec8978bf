"""The page in a real browser: charts are drawn, tables work, nothing leaves the page, and no text of a record runs."""

import json
import time

import pytest

from dpbench.report.page.content import page_of
from dpbench.report.page.document import write_page
from dpbench.report.page.inputs import PageInputs, parse_projections
from dpbench.report.page.over_commits import of_two_commits
from tests.elastic.making import made_records
from tests.report.page.chromium import CHROMIUM
from tests.report.page.conftest import serious_faults
from tests.report.page.making_commits import commit, commit_records
from tests.report.page.making_gates import gate_lines, hostile_gate_lines
from tests.report.page.making_page import (
    HOSTILE,
    LANES,
    failed_record,
    gpu_records,
    hostile_records,
    lane_records,
    made_case,
)
from tests.report.page.test_document import PROJECTIONS

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium"),
    pytest.mark.xdist_group("chromium"),
]


HISTORIES = ("history.html", "two.html", "gates.html")
HOSTILE_PAGES = ("hostile.html", "hostile-history.html", "hostile-gates.html")


def hostile_commits():
    """Return commits whose other texts are hostile."""
    environment = {
        "hostname": HOSTILE[0] + HOSTILE[3],
        "cpu_model": HOSTILE[1],
        "dpbench": HOSTILE[5],
        "os": HOSTILE[6],
    }
    return [
        record.model_copy(
            update={
                "environment": record.environment.model_copy(update=environment),
                "case": made_case(str(record.case.variant), "+".join(record.case.devices), 64, HOSTILE[0] + HOSTILE[6]),
                "run": HOSTILE[4],
            }
        )
        for record in commit_records()
    ]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    records = [*gpu_records(), failed_record("naive", "CUDA out of memory")]
    write_page(page_of(PageInputs(records, projections=parse_projections(PROJECTIONS))), folder / "page.html")
    hostile = [
        record.model_copy(update={"run": HOSTILE[0], "reason": HOSTILE[1]})
        for record in made_records(workload=HOSTILE[0])
    ]
    write_page(page_of(PageInputs(hostile_records(), elastic=hostile)), folder / "hostile.html")
    write_page(page_of(PageInputs(elastic=made_records())), folder / "elastic.html")
    with_commit = LANES.model_copy(update={"commit": "0123456789" * 4})
    of_commit = [record.model_copy(update={"environment": with_commit}) for record in lane_records(rounds=1)]
    write_page(page_of(PageInputs(of_commit)), folder / "commit.html")
    history = PageInputs(commit_records())
    write_page(page_of(history), folder / "history.html")
    write_page(page_of(of_two_commits(history, commit(2), commit(15))), folder / "two.html")
    write_page(page_of(PageInputs(gates=gate_lines())), folder / "gates.html")
    write_page(page_of(PageInputs(hostile_commits())), folder / "hostile-history.html")
    write_page(page_of(PageInputs(gates=hostile_gate_lines())), folder / "hostile-gates.html")
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


@pytest.fixture
def page(opened):
    """Return the tab with the page of a sweep, after its charts are drawn."""
    return opened("page.html")


def texts(tab, selector):
    return tab.run(f"[...document.querySelectorAll({json.dumps(selector)})].map((each) => each.textContent)")


def test_every_chart_is_drawn_and_nothing_is_asked_for(page, pages):
    marks = page.run(
        "[...document.querySelectorAll('.chart')].map((each) => each.querySelectorAll('svg .role-mark path').length"
        " + each.querySelectorAll('svg .role-mark line').length)"
    )
    assert len(marks) == 7
    assert min(marks) > 0
    assert page.requests == [(pages / "page.html").as_uri()]
    assert page.messages == []


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "places"), [("history.html", 20), ("two.html", 2)])
def test_a_line_for_each_case_and_the_table_of_changes_are_drawn(opened, name, places):
    page = opened(name)
    chart = "#m0-history-ratios .chart svg"
    assert page.run(f"document.querySelectorAll('{chart} .mark-line path:not([stroke-dasharray])').length") == 5
    assert page.run(f"document.querySelectorAll('{chart} .mark-symbol path[transform]').length") >= 5 * places
    assert commit(2)[:10] in texts(page, f"{chart} .mark-text text")
    assert len(texts(page, "#m0-history-changes tbody tr")) == 5


@pytest.mark.exhaustive
def test_base_and_head_of_each_gate_are_drawn_and_slower_gates_are_ringed(opened):
    page = opened("gates.html")
    chart = "#gate0-ratios .chart svg"
    select = "document.querySelector('#gate0-ratios select')"
    assert page.run(f"{select}.selectedOptions[0].textContent") == "deep"
    assert texts(page, "#gate0-ratios .choice")[0].startswith("Benchmark ")
    page.run(f"{select}.value = 'b0'; {select}.dispatchEvent(new Event('change'))")
    page.wait(f"document.querySelectorAll('{chart} .mark-symbol path[stroke=\"var(--bad)\"]').length === 2")
    assert page.run(f"document.querySelectorAll('{chart} .mark-line path:not([stroke-dasharray])').length") == 2
    assert page.run(f"document.querySelectorAll('{chart} .mark-symbol path[transform]').length") >= 2 * 20 + 2
    assert len(texts(page, "#gate0-ratios tbody tr")) == 2 * 20


@pytest.mark.exhaustive
def test_a_chart_has_a_name_and_its_table(page):
    assert page.run("[...document.querySelectorAll('.chart')].every((each) => each.getAttribute('aria-label'))")
    shown = texts(page, "#m0-ratios-ratios table tbody tr")
    assert len(shown) == 10
    assert any(text.startswith("torch_dp") for text in shown)


def test_a_setting_is_chosen_for_all_panels_of_it(page):
    before = texts(page, "#m0-phases-phases tbody tr")
    page.run(
        "{const s = document.querySelector('#m0-ratios-ratios select'); s.selectedIndex = 0;"
        " s.dispatchEvent(new Event('change'));}"
    )
    page.wait("document.querySelectorAll('#m0-ratios-ratios tbody tr').length === 4")
    assert page.run("document.querySelector('#m0-phases-phases select').selectedIndex") == 0
    assert texts(page, "#m0-phases-phases tbody tr") != before
    assert set(texts(page, "#m0-scaling-scaling .role-legend-label text")) <= {"torch_dp", "tuned", "ddp"}


def place_of(tab, header):
    return texts(tab, "#raw th").index(header)


def column(tab, header):
    return texts(tab, f"#raw tbody td:nth-child({place_of(tab, header) + 1})")


def test_the_table_is_sorted_by_its_headers(page):
    place = place_of(page, "ms a step")
    page.run(f"document.querySelectorAll('#raw th button')[{place}].click()")
    values = [float(cell.replace(",", "")) for cell in column(page, "ms a step") if cell != "-"]
    assert values == sorted(values)
    assert column(page, "ms a step")[-1] == "-"
    page.run(f"document.querySelectorAll('#raw th button')[{place}].click()")
    assert [float(cell.replace(",", "")) for cell in column(page, "ms a step") if cell != "-"] == values[::-1]
    assert page.run(f"document.querySelectorAll('#raw th')[{place}].getAttribute('aria-sort')") == "descending"
    assert page.run(f"document.activeElement === document.querySelectorAll('#raw th button')[{place}]")


@pytest.mark.exhaustive
def test_the_table_is_filtered_and_copied(page):
    page.run(
        "{const f = document.getElementById('filter'); f.value = 'ddp cuda*8'; f.dispatchEvent(new Event('input'));}"
    )
    assert set(column(page, "variant")) == {"ddp"}
    assert set(column(page, "devices")) == {"cuda*8"}
    assert "2 of 2 matching rows" in page.run("document.getElementById('count').textContent")
    page.run("window.copied = ''; navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    page.run("document.getElementById('copy').click()")
    page.wait("window.copied !== ''")
    lines = page.run("window.copied").splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("variant,devices,batch,outcome")
    assert lines[1].startswith("ddp,cuda*8,64,ok,")


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["page.html", *HISTORIES, *HOSTILE_PAGES[1:]])
def test_a_wide_page_fits_a_phone(opened, name):
    assert opened(name, width=390).run("document.documentElement.scrollWidth") <= 390


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["page.html", *HISTORIES])
def test_charts_fit_the_page(opened, name):
    page = opened(name, width=1000)
    assert page.run("document.querySelectorAll('.chart svg').length") > 0
    assert page.run("[...document.querySelectorAll('.chart')].every((each) => each.scrollWidth <= each.clientWidth)")


@pytest.mark.exhaustive
def test_a_value_of_the_environment_and_a_reason_fit_their_tables(tab, pages):
    tab.width(390)
    tab.open(pages / "commit.html")
    table = "document.querySelector('#m0-environment-environment .table')"
    assert tab.run(f"{table}.scrollWidth <= {table}.clientWidth")
    tab.width(1400)
    tab.open(pages / "elastic.html")
    rows = "[...document.querySelectorAll('#elastic-runs tbody tr')]"
    assert tab.run(f"Math.max(...{rows}.map((row) => row.offsetHeight))") < 80
    table = "document.querySelector('#elastic-runs .table')"
    assert tab.run(f"{table}.scrollWidth <= {table}.clientWidth")


@pytest.mark.exhaustive
@pytest.mark.parametrize("width", [390, 720, 1400])
def test_no_legend_is_cut_off(page, pages, width):
    page.width(width)
    page.open(pages / "page.html")
    cut = page.run(
        "[...document.querySelectorAll('.chart svg')].flatMap((svg) => [...svg.querySelectorAll("
        "'.role-legend-label text')].filter((each) => each.getBoundingClientRect().right >"
        " svg.getBoundingClientRect().right + 1).map((each) => each.textContent))"
    )
    assert cut == []


def contrasts(tab):
    """The contrast of each text of the charts with its card, by WCAG's formula; texts on marks are left out."""
    return tab.run(
        """(() => {
          const luminance = (colour) => {
            const parts = colour.match(/[\\d.]+/g).slice(0, 3).map((each) => each / 255)
              .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
            return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
          };
          return [...document.querySelectorAll('svg .role-axis text, svg .role-legend text')].map((each) => {
            const [a, b] = [getComputedStyle(each).fill, getComputedStyle(each.closest('figure')).backgroundColor]
              .map(luminance).sort((x, y) => y - x);
            return (a + 0.05) / (b + 0.05);
          });
        })()"""
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("dark", [False, True])
def test_texts_of_charts_are_readable_in_light_and_dark(page, dark):
    page.media(dark=dark)
    ratios = contrasts(page)
    assert len(ratios) > 50
    assert min(ratios) >= 4.5
    background = page.run("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, background[4:-1].split(","))) < 200) == dark


@pytest.mark.exhaustive
def test_print_shows_the_charts_and_no_controls(page):
    page.media(dark=True, print_=True)
    assert page.run("getComputedStyle(document.querySelector('.controls')).display") == "none"
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert min(contrasts(page)) >= 4.5


@pytest.mark.parametrize("name", HOSTILE_PAGES)
def test_texts_of_records_do_not_run(opened, pages, name):
    tab = opened(name)
    time.sleep(0.2)
    assert tab.run("window.injected") is None
    assert tab.run("document.images.length") == 0
    assert tab.run("document.scripts.length") == 3
    assert tab.requests == [(pages / name).as_uri()]
    assert tab.messages == []
    assert HOSTILE[0] in tab.run("document.body.innerText")
    assert LANES.hostname not in tab.run("document.body.innerText")


def test_a_copied_table_holds_no_formula(opened):
    tab = opened("hostile.html")
    tab.run("window.copied = ''; navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    tab.run("document.getElementById('copy').click()")
    tab.wait("window.copied !== ''")
    assert "\"'='" in tab.run("window.copied").replace('""', '"')


def test_the_policy_stops_a_script_that_got_into_the_page(tab, pages):
    text = (pages / "page.html").read_text()
    (pages / "injected.html").write_text(text.replace("<main>", "<main><script>window.injected = 1</script>"))
    tab.messages.clear()
    tab.open(pages / "injected.html")
    assert tab.run("window.injected") is None
    assert any("Content Security Policy" in message for message in tab.messages)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", ["page.html", *HISTORIES])
def test_an_accessibility_checker_finds_no_serious_fault(opened, axe, name, dark):
    assert serious_faults(opened(name, dark=dark), axe) == []


@pytest.mark.exhaustive
def test_an_accessibility_checker_finds_no_serious_fault_on_a_phone(opened, axe):
    assert serious_faults(opened("page.html", width=390), axe) == []
