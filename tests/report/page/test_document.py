"""The document around the charts: what is escaped, what may run, what is said to be missing."""

import json
import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

import pytest

from dpbench.errors import WrongInputError
from dpbench.records.row import to_line
from dpbench.records.store import StoreError
from dpbench.report.page.content import page_of
from dpbench.report.page.document import PagePathError, html, write_page
from dpbench.report.page.inputs import PageInputs, read_inputs
from dpbench.report.page.plain_tables import MOST_ROWS
from tests.report.page.making_page import hostile_records, lane_records

PROJECTIONS = {
    "schema": 1,
    "projections": [
        {
            "machine": "8xV100",
            "workload": "mlp/small",
            "batch": 64,
            "math": "default",
            "advice": "Use ddp.",
            "variants": [
                {"variant": "ddp", "step_time_s": {"low": 0.01, "mid": 0.02, "high": 0.03}, "bound_by": []},
                {"variant": "naive", "reason": "naive is not projected"},
            ],
        }
    ],
}


class Outline(HTMLParser):
    """The tags of a document with their attributes."""

    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


def made(records=(), **fields):
    return html(page_of(PageInputs(records, **fields)))


def test_the_policy_allows_the_pages_own_scripts_and_nothing_else():
    page = made(lane_records())
    outline = Outline(page)
    policy = next(tag["content"] for name, tag in outline.tags if tag.get("http-equiv") == "Content-Security-Policy")
    allowed = dict(part.split(" ", 1) for part in policy.split("; "))
    own = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert allowed["default-src"] == allowed["base-uri"] == allowed["form-action"] == "'none'"
    assert allowed["script-src"].split() == [
        f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in own
    ]
    assert len(own) == 2
    assert "unsafe" not in policy


def test_the_page_refers_to_nothing_outside():
    for name, attributes in Outline(made(lane_records())).tags:
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith("#")
        assert name not in ("link", "iframe", "img", "object", "embed")


def test_hostile_texts_add_no_element_and_no_control_character():
    text = made(hostile_records())
    assert [name for name, _ in Outline(text).tags].count("script") == 3
    assert "<img" not in text
    assert "<b>" not in text
    outside_library = text.replace(re.search(r"<script>/\*.*?</script>", text, re.DOTALL)[0], "")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", outside_library)


def test_the_data_is_json_that_cannot_end_its_element():
    text = made(hostile_records())
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1]
    assert "<" not in data
    assert set(json.loads(data)) == {"config", "panels", "table"}


def test_no_records_say_what_to_do():
    text = made()
    assert "There are no records." in text
    assert "dpbench compare" in text
    assert 'id="raw"' not in text


def test_cases_with_too_few_samples_are_named_and_marked():
    few = [record.model_copy(update={"samples_s": record.samples_s[:8]}) for record in lane_records(rounds=2)]
    text = made([*lane_records(rounds=2, workload="mlp/tiny"), *few])
    assert "5 cases have too few samples to be ranked; the table at the end marks them." in text
    assert text.count('"ok, few samples"') == 5


def test_a_corrupted_line_and_a_newer_schema_are_left_out_and_named(tmp_path):
    lines = [to_line(record) for record in lane_records(rounds=2)]
    newer = lines[0].replace(b'"schema":6', b'"schema":99')
    path = tmp_path / "records.jsonl"
    path.write_bytes(b"".join([*lines, b"{torn\n", newer, lines[1][:40]]))
    inputs = read_inputs([path])
    assert len(inputs.records) == len(lines)
    text = html(page_of(inputs))
    assert f"{path}: line {len(lines) + 1} is not JSON" in text
    assert "2 bad lines were left out" in text
    assert "a torn line of 40 bytes at the end was dropped" in text


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(StoreError, match=r"none\.jsonl: cannot be read: No such file"):
        read_inputs([tmp_path / "none.jsonl"])
    with pytest.raises(WrongInputError, match=r"none\.json: cannot be read: No such file"):
        read_inputs([tmp_path / "none.json"])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{}", "has no projections; allowed: what `dpbench project --json` prints"),
        ("[1]", "has no projections"),
        ('{"projections": [{"machine": 3}]}', "projections: 0.machine: "),
        ("nothing", "Expecting value"),
        ('{"projections": [' + json.dumps(PROJECTIONS["projections"][0]).replace("0.02", "NaN") + "]}", "finite"),
    ],
)
def test_json_that_is_no_projection_is_one_line(tmp_path, content, reason):
    path = tmp_path / "p.json"
    path.write_text(content)
    with pytest.raises(WrongInputError, match=re.escape(reason)) as raised:
        read_inputs([path])
    assert "\n" not in str(raised.value)


def test_too_many_cases_are_cut_and_counted(monkeypatch):
    monkeypatch.setattr("dpbench.report.page.plain_tables.MOST_ROWS", 3)
    page = page_of(PageInputs(lane_records(rounds=1)))
    assert len(page.table.rows) == 3
    assert page.table.left_out == 2
    assert any(f"first {MOST_ROWS:,}; 2 more are left out" in note for note in page.notes)


def test_a_path_that_cannot_be_written_is_one_line(tmp_path):
    page = page_of(PageInputs())
    with pytest.raises(
        PagePathError, match=r"none/page\.html: cannot be written: No such file or directory; allowed: a file"
    ):
        write_page(page, tmp_path / "none/page.html")
    with pytest.raises(PagePathError, match="not a regular file"):
        write_page(page, tmp_path)
