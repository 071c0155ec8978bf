"""`dpbench export`, and `--csv` of a comparison."""

import pytest

from dpbench.records.record import to_line
from dpbench.report.rows import Format, RowKind, rows_of, to_bytes
from tests.records.making import case, ok
from tests.report.test_rows import RECORDS


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--to", "action", "--rows", "samples"], "--rows: 'samples' is not for --to action; allowed: cases"),
        (["--to", "parquet"], "--output: is missing, and parquet is binary; allowed: a file"),
        (["--output", "no/such"], "--output: 'no/such' cannot be written: No such file or directory; allowed: a file"),
        (["--to", "cvs"], "'cvs' is not one of 'csv', 'parquet', 'action'"),
    ],
)
def test_wrong_options_are_one_line_and_write_nothing(words, line, dpbench, tmp_path):
    (tmp_path / "records.jsonl").write_bytes(b"".join(map(to_line, [ok(case("tuned"), 0)])))
    done = dpbench("export", "records.jsonl", *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert line in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["records.jsonl"]


def test_a_file_and_standard_output_get_the_same(dpbench, tmp_path):
    records, file = tmp_path / "records.jsonl", tmp_path / "cases.csv"
    records.write_bytes(b"".join(map(to_line, RECORDS)))
    assert dpbench("export", records, "--output", file).returncode == 0
    assert file.read_bytes() == to_bytes(rows_of(RECORDS, RowKind.CASES), Format.CSV)
    assert dpbench("export", records).stdout == file.read_text()


def test_a_comparison_writes_its_rows(dpbench, tmp_path):
    where = ["--workloads", "mlp/tiny", "--batch", "8", "--devices", "cpu*2", "--rounds", "1"]
    assert dpbench("compare", "--variants", "floor", *where, "--csv", "here.csv").returncode == 0
    header, *rows = (tmp_path / "here.csv").read_text().splitlines()
    assert header.startswith("run,hostname,")
    assert {row.split(",")[5] for row in rows} == {"floor", "single"}
