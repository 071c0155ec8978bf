"""The file of records: lines that are none are left out and named."""

import pytest

from dpbench.elastic.elastic_record import ElasticRecord
from dpbench.records.row import to_line
from dpbench.records.store import read_rows
from tests.elastic.making import made_records


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (b'"schema":6', b'"schema":7', "has schema 7, newer than this dpbench knows; allowed: 6"),
        (b'"schema":6', b'"schema":3', "has schema 3, which dpbench of commit 640af4b2 reads; allowed: 6"),
        (b"{", b"[", "is not JSON"),
        (b'"scheme":"elastic"', b'"scheme":"none"', "is no elastic run: scheme"),
    ],
)
def test_a_line_that_cannot_be_read_is_named_and_the_others_are_read(tmp_path, old, new, complaint):
    file = tmp_path / "e.jsonl"
    undisturbed, elastic = map(to_line, made_records())
    file.write_bytes(undisturbed + elastic.replace(old, new) + undisturbed)
    contents = read_rows(file, ElasticRecord, leaves_out_bad_lines=True)
    (warning,) = contents.warnings
    assert [record.scheme for record in contents.rows] == ["undisturbed", "undisturbed"]
    assert warning.startswith(f"{file}: line 2 {complaint}")
    assert warning.endswith("; 1 bad line was left out")
