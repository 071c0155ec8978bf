"""What a page says and draws: an outline of each kind of page, as before."""

import pytest

from dpbench.records.count_record import CountRecord, Counts, Phase, PhaseCounts, Traffic
from dpbench.records.record import Outcome
from dpbench.report.page.content import page_of
from dpbench.report.page.inputs import PageInputs, parse_projections
from dpbench.report.page.over_commits import of_two_commits
from tests.elastic.making import made_records
from tests.report.page.making_commits import commit, commit_records
from tests.report.page.making_gates import gate_lines
from tests.report.page.making_page import GPUS, failed_record, gpu_records, lane_records, made_case
from tests.report.page.test_document import PROJECTIONS
from tests.report.snapshots import as_json, assert_as_before

MOST_ROWS = 12


def counted(**copies):
    traffic = {
        name.replace("_to_", "->").replace("sim", "sim:"): Traffic(count=1, size_bytes=size)
        for name, size in copies.items()
    }
    counts = Counts(phases={Phase.FORWARD: PhaseCounts(copies=traffic), Phase.BACKWARD: PhaseCounts(copies=traffic)})
    return CountRecord(case=made_case("tuned", "sim*2", 64), outcome=Outcome.OK, counts=counts, environment=GPUS)


def outline(page):
    """Yield the page's texts and charts, and of each panel the first rows of the first choice."""
    yield from (page.title, *(f"note: {note}" for note in page.notes))
    sections = [*page.sections]
    for machine in page.machines:
        yield from (f"# {machine.name}", machine.summary, *(machine.main.sentences if machine.main else ()))
        yield from (f"- {' '.join(other.sentences)}" for other in machine.others)
        sections += machine.sections
    for section in sections:
        yield from (f"## {section.id}: {section.title}", *section.answers)
        for panel in section.panels:
            key = panel.first if panel.first in panel.rows else next(iter(panel.rows))
            yield f"### {panel.id}: {panel.title}. {panel.text} {panel.choice} {panel.is_folded} {len(panel.rows)}"
            yield f"{panel.labels.get(key, key)}: {dict(panel.columns)}, {len(panel.rows[key])} rows"
            yield from (as_json(row) for row in panel.rows[key][:MOST_ROWS])
            yield as_json(panel.spec)
    yield from (as_json(page.table.columns), *(as_json(row) for row in page.table.rows[:MOST_ROWS]))


def pages():
    copies = counted(host_to_sim0=100, sim0_to_sim1=2**20, sim1_to_sim0=2**20)
    several = [*gpu_records((64, 256), (2, 8), rounds=3), failed_record("naive", "out of memory")]
    projections = parse_projections(PROJECTIONS)
    elastic = [*made_records("first"), *made_records("second", plan="leave@7:1")]
    return {
        "gpus": page_of(PageInputs(several, counts=[copies])),
        "lanes": page_of(PageInputs(lane_records(), projections=projections)),
        "commits": page_of(PageInputs(commit_records())),
        "gates": page_of(PageInputs(gates=gate_lines())),
        "gates of two machines": page_of(PageInputs(gates=[*gate_lines(8), *gate_lines(8, GPUS)])),
        "elastic": page_of(PageInputs(elastic=elastic)),
        "one elastic run": page_of(PageInputs(elastic=made_records())),
        "two commits": page_of(of_two_commits(PageInputs(commit_records([2, 15])), commit(2), commit(15))),
    }


PAGES = pages()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_as_before(name):
    assert_as_before(f"page/{name.replace(' ', '-')}.txt", "".join(f"{line}\n" for line in outline(PAGES[name])))
