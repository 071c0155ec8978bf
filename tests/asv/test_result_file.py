"""asv's results files: what is written is read with asv itself."""

import json
from math import nan

import pytest
from asv.results import Results

from dpbench.asv.machine_file import AsvError
from dpbench.asv.result_file import COLUMNS, Measured, ResultFile, ResultRow, read_results, write_results

STATS = {"ci_99_a": 0.9, "ci_99_b": 1.2, "q_25": 0.95, "q_75": 1.1, "number": 1, "repeat": 3}
ROW = ResultRow(
    params=(("'a'", "'b'"), ("1", "2")),
    version="1",
    points={("'a'", "1"): Measured(1.0, STATS, (0.9, 1.0, 1.2)), ("'b'", "2"): Measured(7.0)},
    started_at_ms=1_700_000_000_000,
)
FILE = ResultFile(
    commit_hash="0123456789" * 4,
    env_name="env-py3.11",
    date=1_600_000_000_000,
    params={"machine": "here", "gpu": "none"},
    python="3.11",
    requirements={},
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "here" / "01234567-env-py3.11.json"


def test_a_written_row_is_read_back(path):
    write_results(path, FILE.with_row("some.benchmark", ROW))
    assert read_results(path).row("some.benchmark") == ROW
    assert read_results(path).row("another") is None


def test_asv_reads_what_we_write(path):
    write_results(path, FILE.with_row("some.benchmark", ROW))
    found = Results.load(str(path), machine_name="here")
    params = [list(values) for values in ROW.params]
    assert found.get_result_params("some.benchmark") == params
    assert [str(value) for value in found.get_result_value("some.benchmark", params)] == ["1.0", "nan", "nan", "7.0"]
    assert found.get_result_samples("some.benchmark", params) == [[0.9, 1.0, 1.2], None, None, None]
    assert found.get_result_stats("some.benchmark", params)[0] == STATS
    assert found.benchmark_version["some.benchmark"] == "1"


def test_we_read_what_asv_writes(path):
    from asv.runner import BenchmarkResult

    theirs = Results({"machine": "here"}, {}, FILE.commit_hash, FILE.date, "3.11", FILE.env_name, {})
    benchmark = {"name": "some.benchmark", "version": "3", "params": [["'a'", "'b'", "'c'"]]}
    result = BenchmarkResult(
        result=[True, nan, None],
        samples=[[1.0, 2.0, 3.0], None, None],
        number=[1, None, None],
        errcode=0,
        stderr="",
        profile=None,
    )
    theirs.add_result(benchmark, result, record_samples=True)
    theirs.save(str(path.parents[1]))
    row = read_results(path).row("some.benchmark")
    assert (row.version, row.params, list(row.points)) == ("3", (("'a'", "'b'", "'c'"),), [("'a'",)])
    assert row.points["'a'",].result == 2.0
    assert row.points["'a'",].samples == (1.0, 2.0, 3.0)
    assert row.points["'a'",].stats["repeat"] == 3


def test_other_rows_do_not_change(path):
    other = [[1.0, None], [["x", "y"]], "9", None, None, [float("-inf"), None]]
    mine = FILE.model_copy(update={"results": {"other": other}}).with_row("some.benchmark", ROW)
    write_results(path, mine)
    content = json.loads(path.read_text())
    assert content["results"]["other"] == other
    assert tuple(content["result_columns"]) == COLUMNS


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"version": 3}, "has version 3; allowed: 2"),
        ({"version": 1}, "has version 1; allowed: 2"),
        ({"commit_hash": None}, "is not a results file: commit_hash is None: Input should be a valid string"),
        ({"commit_hash": "../../x"}, "is not a results file: commit_hash is '../../x'"),
        ({"result_columns": None}, "is not a results file: result_columns is None: Input should be a valid tuple"),
        ({"result_columns": ["result", "colour"]}, r"is not a results file: .*unknown columns \['colour'\]"),
    ],
)
def test_a_file_that_cannot_be_understood_is_reported_in_one_line(path, change, fault):
    path.parent.mkdir()
    path.write_text(json.dumps({**FILE.model_dump(), **change}))
    with pytest.raises(AsvError, match=f"{path.name}: {fault}") as raised:
        read_results(path)
    assert "\n" not in str(raised.value)


def test_a_truncated_file_is_reported_in_one_line(path):
    path.parent.mkdir()
    for text in (json.dumps(FILE.model_dump())[:-20], '{"version": 2, "x": ' + "[" * 200_000):
        path.write_text(text)
        with pytest.raises(AsvError, match=f"{path.name}: is not JSON"):
            read_results(path)


@pytest.mark.parametrize(
    "row",
    [
        [[1.0], [["a", "b"]]],
        [[1.0]],
        [[1.0], 5],
        [[1.0], [5]],
        [[1.0], [["1"] * 1000] * 4],
        [["\x1b[31m"], [["a"]]],
        [[float("inf")], [["a"]]],
        [[1.0], [["a"]], "1", None, None, ["low"]],
        [[1.0], [["a"]], *[None] * 9, [[1.0, float("nan")]]],
    ],
)
def test_a_row_that_cannot_be_read_is_reported_in_one_line(row):
    with pytest.raises(AsvError, match=r"some\.benchmark: is not a row of results: .+") as raised:
        FILE.model_copy(update={"results": {"some.benchmark": row}}).row("some.benchmark")
    assert "\n" not in str(raised.value)
