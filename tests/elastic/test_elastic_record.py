"""The file of records: lines that are none are left out and named."""

import pytest

from dpbench.elastic.elastic_record import read_elastic, to_elastic_line
from tests.elastic.making import made_records


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (b'"schema":3', b'"schema":4', "has schema 4, newer than this dpbench knows; allowed: 3"),
        (b'"schema":3', b'"schema":2', "has schema 2, which dpbench of commit 329c1a71 reads; allowed: 3"),
        (b"{", b"[", "is not JSON"),
        (b'"scheme":"elastic"', b'"scheme":"none"', "is no record of an elastic run: scheme"),
    ],
)
def test_a_line_that_cannot_be_read_is_named_and_the_others_are_read(tmp_path, old, new, complaint):
    file = tmp_path / "e.jsonl"
    undisturbed, elastic = map(to_elastic_line, made_records())
    file.write_bytes(undisturbed + elastic.replace(old, new) + undisturbed)
    records, (warning,) = read_elastic(file)
    assert [record.scheme for record in records] == ["undisturbed", "undisturbed"]
    assert warning.startswith(f"{file}: line 2 {complaint}")
    assert warning.endswith("; it was left out")
