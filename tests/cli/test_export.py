"""`dpbench export`, and `--csv` of a comparison."""

from dpbench.records.row import to_line
from dpbench.report.rows import Format, RowKind, rows_of, to_bytes
from tests.report.test_rows import RECORDS


def test_a_file_and_standard_output_get_the_same(dpbench, tmp_path):
    records, file = tmp_path / "records.jsonl", tmp_path / "cases.csv"
    records.write_bytes(b"".join(map(to_line, RECORDS)))
    assert dpbench("export", records, "--output", file).returncode == 0
    assert file.read_bytes() == to_bytes(rows_of(RECORDS, RowKind.CASES), Format.CSV)
    assert dpbench("export", records).stdout == file.read_text()


def test_a_comparison_writes_its_rows(dpbench, tmp_path):
    where = ["--workloads", "mlp/tiny", "--batch", "8", "--devices", "cpu*2", "--rounds", "1", "--budget", "5s"]
    assert dpbench("compare", "--variants", "floor", *where, "--csv", "here.csv").returncode == 0
    header, *rows = (tmp_path / "here.csv").read_text().splitlines()
    assert header.startswith("run,hostname,")
    assert {row.split(",")[5] for row in rows} == {"floor", "single"}
