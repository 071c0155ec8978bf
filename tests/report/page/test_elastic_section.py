"""The section of elastic runs, without a browser."""

from dpbench.elastic.outage import OutagePart
from dpbench.records.row import to_line
from dpbench.report.elastic_table import elastic_json
from dpbench.report.page.content import page_of
from dpbench.report.page.document import html
from dpbench.report.page.elastic_section import elastic_section
from dpbench.report.page.inputs import PageInputs, read_inputs
from tests.elastic.making import made_records, two_rounds
from tests.report.page.making_page import HOSTILE, lane_records


def panels(records):
    return {panel.id: panel for panel in elastic_section(records).panels}


def test_without_faults_there_is_no_outage():
    assert set(panels(made_records()[:1])) == {"runs"}
    assert elastic_section([]) is None


def test_the_parts_on_the_page_and_in_json_add_up_to_the_outage():
    undisturbed, elastic = made_records()
    records = [undisturbed, elastic.model_copy(update={"events": two_rounds()})]
    (row,) = panels(records)["outages"].rows[elastic.run]
    (outage,) = elastic_json(records)["runs"][1]["outages"]
    assert sum(row[part] for part in OutagePart) == sum(outage["parts_s"].values()) == outage["outage_s"] == 12.5


def test_files_of_sweeps_and_of_elastic_runs_make_one_page(tmp_path):
    (tmp_path / "e.jsonl").write_bytes(b"".join(map(to_line, made_records())) + b'{"scheme": "torn')
    (tmp_path / "r.jsonl").write_bytes(b"".join(map(to_line, lane_records(rounds=2))))
    inputs = read_inputs([tmp_path / "e.jsonl", tmp_path / "r.jsonl"])
    assert (len(inputs.elastic), len(inputs.records)) == (2, len(lane_records(rounds=2)))
    (left_out,) = inputs.left_out
    assert left_out == f"{tmp_path / 'e.jsonl'}: a torn line of 16 bytes at the end was dropped"
    page = page_of(inputs)
    assert [section.id for section in page.sections] == ["elastic"]
    assert "mlp/tiny" in page.title


def test_hostile_texts_of_elastic_records_are_escaped():
    records = [
        record.model_copy(update={"run": HOSTILE[0], "reason": HOSTILE[1] + HOSTILE[2] + HOSTILE[3]})
        for record in made_records(workload=HOSTILE[0] + HOSTILE[1])
    ]
    text = html(page_of(PageInputs(elastic=records)))
    assert text.count("<script") == html(page_of(PageInputs(elastic=made_records()))).count("<script")
    assert "<img" not in text
    assert "There are no records" not in text
