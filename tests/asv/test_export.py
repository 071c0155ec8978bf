import json
import math

import pytest

from dpbench.asv.export import commit_date_ms, export, lacks
from dpbench.asv.grid import STEP_TIME
from dpbench.asv.machine_file import AsvError
from dpbench.asv.result_file import read_results
from dpbench.records.compare import compare
from dpbench.stats.rounds import median_of_rounds
from tests.records.making import ENVIRONMENT, case, failed, ok, thin

COMMIT = "0123456789" * 4
AT_COMMIT = ENVIRONMENT.model_copy(update={"commit": COMMIT, "dirty": False})
MACHINE = {"machine": "here", "os": "Linux", "gpu": "what it was once"}


def case_of_grid(variant="tuned", **fields):
    return case(variant, workload="mlp/small", **fields)


def record(number=0, samples_s=(0.1, 0.2, 0.3), variant="tuned", environment=AT_COMMIT):
    return thin(case_of_grid(variant), number, samples_s, environment=environment)


def export_to(folder, records):
    return export(records, folder, MACHINE, lambda _: 1_600_000_000_000)


def points(folder):
    (path,) = folder.glob("here/*.json")
    return read_results(path).row(STEP_TIME).points


def test_the_result_is_the_number_of_dpbench_compare(tmp_path):
    rounds = [(0.1, 0.2, 0.3), (0.4, 0.5, 0.9), (0.2, 0.2, 0.2)]
    reference = [(1.0, 1.1), (1.2, 1.3)]
    records = [record(i, samples) for i, samples in enumerate(rounds)]
    records += [record(i, samples, "naive") for i, samples in enumerate(reference)]
    found = export_to(tmp_path, records)
    assert [path.name for path in found.paths] == ["01234567-dpbench-records-py3.11.json"]
    point = points(tmp_path)["'tuned'", "'mlp/small'", "64", "2"]
    assert point.result == median_of_rounds(rounds).value
    assert point.samples == tuple(sample for samples in rounds for sample in samples)
    naive = points(tmp_path)["'naive'", "'mlp/small'", "64", "2"]
    (row,) = [row for row in compare(records).comparisons[0].rows if row.summary.case.variant == "tuned"]
    assert point.result / naive.result == pytest.approx(row.ratio.times.value)


def test_intervals_are_of_the_samples(tmp_path):
    samples = tuple(0.1 + i / 1000 for i in range(60))
    export_to(tmp_path, [record(samples_s=samples)])
    stats = points(tmp_path)["'tuned'", "'mlp/small'", "64", "2"].stats
    assert stats["ci_99_a"] < 0.1295 < stats["ci_99_b"]
    assert stats["ci_99_a"] == pytest.approx(0.119, abs=0.0011)  # 2.576 sqrt(60) / 2 ranks from the middle
    assert (stats["q_25"], stats["q_75"]) == (pytest.approx(0.11475), pytest.approx(0.14425))
    assert (stats["number"], stats["repeat"]) == (1, 60)


def test_facts_of_the_record_replace_those_of_the_machine_file(tmp_path):
    environment = AT_COMMIT.model_copy(update={"driver": "550.54"})
    (path,) = export_to(tmp_path, [record(environment=environment)]).paths
    params = read_results(path).params
    assert (params["gpu"], params["driver"], params["os"], params["python"]) == ("none", "550.54", "Linux", "3.11")


def test_a_second_export_replaces_its_points_and_keeps_the_others(tmp_path):
    export_to(tmp_path, [record(), record(variant="naive")])
    export_to(tmp_path, [record(samples_s=(0.7, 0.7, 0.7))])
    found = points(tmp_path)
    assert found["'tuned'", "'mlp/small'", "64", "2"].result == pytest.approx(0.7)
    assert math.isclose(found["'naive'", "'mlp/small'", "64", "2"].result, 0.2)


def test_records_outside_the_grid_are_left_out_with_a_reason(tmp_path):
    dirty = AT_COMMIT.model_copy(update={"dirty": True})
    found = export_to(
        tmp_path,
        [
            record(environment=dirty),
            record(environment=ENVIRONMENT),
            failed(case_of_grid(), 0, "crashed", "why"),
            ok(case(workload="mlp/tiny"), 0, environment=AT_COMMIT),
            ok(case_of_grid(devices="cpu*3"), 0, environment=AT_COMMIT),
            ok(case_of_grid().model_copy(update={"threads": 1}), 0, environment=AT_COMMIT),
        ],
    )
    assert found.paths == ()
    assert found.left_out == (
        "2 records: no clean commit: the tree had changes, or there is no repository",
        "1 records: no times",
        "3 records: not in the grid of dpbench/asv/grid.py",
    )
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_read_is_not_overwritten(tmp_path):
    (path,) = export_to(tmp_path, [record()]).paths
    path.write_text("{")
    with pytest.raises(AsvError, match="is not JSON"):
        export_to(tmp_path, [record()])
    assert path.read_text() == "{"


def test_a_row_that_cannot_be_read_names_the_file_and_stays(tmp_path):
    (path,) = export_to(tmp_path, [record()]).paths
    broken = json.dumps({**json.loads(path.read_text()), "results": {STEP_TIME: [["much"], [["1"]]]}})
    path.write_text(broken)
    with pytest.raises(AsvError, match=f"^{path}: .*: is not a row of results: result is 'much': Input should be"):
        export_to(tmp_path, [record()])
    assert path.read_text() == broken


def test_files_that_asv_needs_are_reported_with_the_command(tmp_path):
    (line,) = lacks(tmp_path, "here")
    assert line.endswith("here/machine.json; first: asv run --bench just-discover")
    assert f"{tmp_path}/benchmarks.json and " in line
    (tmp_path / "here").mkdir()
    (tmp_path / "here/machine.json").touch()
    (tmp_path / "benchmarks.json").touch()
    assert lacks(tmp_path, "here") == []


def test_an_unknown_commit_is_reported_in_one_line():
    with pytest.raises(AsvError, match=f"commit {COMMIT} is not in this folder's repository"):
        commit_date_ms(COMMIT)
