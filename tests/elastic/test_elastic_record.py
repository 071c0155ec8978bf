"""The file of records: lines that are none are left out and named."""

import pytest

from dpbench.elastic.elastic_record import parse_elastic_line, read_elastic, to_elastic_line
from tests.elastic.making import made_records


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (b'"scheme":"elastic"', b'"scheme":"wrapper"', "has a run of the wrapper, which dpbench shows up to commit"),
        (b'"kind":"kill"', b'"kind":"stop"', "has a fault stop, which dpbench shows up to commit ec6af0e alone"),
        (b'"schema":2', b'"schema":3', "has schema 3; allowed: 1 to 2"),
        (b'"scheme":"elastic"', b'"scheme":"none"', "is no record of an elastic run: scheme"),
    ],
)
def test_a_line_that_cannot_be_read_is_named_and_the_others_are_read(tmp_path, old, new, complaint):
    file = tmp_path / "e.jsonl"
    undisturbed, elastic = map(to_elastic_line, made_records())
    file.write_bytes(undisturbed + elastic.replace(old, new) + undisturbed.replace(b'"schema":2', b'"schema":1'))
    records, (warning,) = read_elastic(file)
    assert [record.scheme for record in records] == ["undisturbed", "undisturbed"]
    assert warning.startswith(f"{file}: line 2 {complaint}")
    assert warning.endswith("; it was left out")


@pytest.mark.parametrize(
    "kind", ["rendezvous_begin", "rendezvous_end", "process_began", "restore_begin", "checkpoint_begin"]
)
def test_events_of_older_records_are_read(kind):
    line = to_elastic_line(made_records()[1]).replace(b'"world":null', b'"world":2')
    record = parse_elastic_line(line.replace(b'"kind":"ready"', f'"kind":"{kind}"'.encode()))
    assert kind in [event.kind for event in record.events]
