"""The published rows: their files, the calibration, the errors, and the committed predictions."""

import json
import tomllib
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.projection import models
from benchmarks.projection.calibrate import CLOSE, DEVICE, HOST, calibrated
from benchmarks.projection.left_out import left_out, model_error_of, orders_left_out
from benchmarks.projection.outcomes import Order, Outcome, as_json, coverages_of, totals_of
from benchmarks.projection.predict import recordings_of
from benchmarks.projection.published import as_published
from benchmarks.projection.report import page
from benchmarks.projection.row_file import ROWS, Data, RowFileError, Table, load_table, load_tables
from benchmarks.projection.validate import COVERAGE_AIM, PAGE, PREDICTIONS, compared, error_text, recording_file
from dpbench.projection.described.machine_file import load_machine
from dpbench.projection.model_error import EXACT, FILE
from dpbench.projection.project import Interval, project
from dpbench.projection.replay.build import Facts, build
from dpbench.projection.replay.draws import draw
from dpbench.records.recording import Copy, Mark, ModelFacts, Wait
from tests.projection.small_machine import copy, machine, operator, recording
from tests.sampling import sampled

FILES = sorted(ROWS.glob("*.toml"))
RENEW = "predictions changed: run `python -m benchmarks.projection.validate`, and say in the commit why they may"


def single(flops: int):
    """Return the tasks of a step with 20 operators on one device."""
    made = recording(*(operator(i, flops=flops, read_bytes=0, written_bytes=0) for i in range(1, 21)), devices=1)
    return build(made.events, machine(1), Facts(1, 1))


@pytest.mark.parametrize(
    ("flops", "measured_s", "factor"), [(10**9, 0.05, DEVICE), (10**9, 0.012, DEVICE), (10**5, 1e-4, HOST)]
)
def test_a_calibrated_device_takes_the_measured_step_in_every_draw(flops, measured_s, factor):
    described, tasks = machine(1), single(flops)
    draws = draw(described.parameters())
    found = calibrated(draws, tasks, described, "float32", measured_s)
    times = project(tasks, described, found.draws, devices=1, batch=1, math="float32").draws_s
    assert times == pytest.approx(np.full(draws.count, measured_s), rel=CLOSE)
    assert (found.factor, found.shrunk) == (factor, 0)
    others = set(draws.values) - {factor}
    assert all(np.array_equal(found.draws.values[name], draws.values[name]) for name in others)


def test_where_one_factor_cannot_reach_the_measured_step_both_shrink():
    # the host takes up to 31 us of the step in some draws, and 26 us were measured
    described, tasks = machine(1), single(10**6)
    draws = draw(described.parameters())
    wide = dict(draws.values) | {HOST: draws.values[HOST] * np.linspace(0.1, 2.0, draws.count)}
    found = calibrated(replace(draws, values=wide), tasks, described, "float32", 6e-5)
    times = project(tasks, described, found.draws, devices=1, batch=1, math="float32").draws_s
    assert times == pytest.approx(np.full(draws.count, 6e-5), rel=CLOSE)
    assert 0 < found.shrunk < 1


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_row_file_is_complete_and_names_what_exists(path):
    table = load_table(path)
    assert table.address.startswith("https://")
    for series in table.series:
        module, _, name = series.workload.partition(":")
        assert module == models.__name__
        assert callable(getattr(models, name))
        for case in series.cases:
            assert load_machine(case.machine).devices >= (case.devices or 1)
    for key in recordings_of(table):
        assert recording_file(*key).is_file(), f"{key}: run `python -m benchmarks.projection.validate --record`"


def test_every_case_has_its_measured_step_or_none_has():
    measured = [case.measured_ms is not None for t in load_tables().values() for s in t.series for case in s.cases]
    assert all(measured) or not any(measured)


WRONG = {
    "no address": ('address = "https', 'adress = "https', "address: Field required"),
    "http": ("https://", "ftp://", "address: String should match pattern"),
    "unknown unit": ("one_device_ms", "one_device_s", "series.0.one_device_s: Extra inputs are not permitted"),
    "negative": ("one_device_ms = ", "one_device_ms = -", "series.0.one_device_ms: Input should be greater than 0"),
    "no reason": ("spec = 5", "spec = 3", "needs why_not"),
    "no such math": ('"float32"', '"fp32"', "math: Input should be 'default', 'float32' or 'tf32'"),
    "no such variant": ('"ddp"', '"dpp"', "variant: Input should be 'torch_dp' or 'ddp'"),
    "one device": ("devices = 2", "devices = 1", "devices: Input should be greater than or equal to 2"),
    "no TOML": ("[[series]]", "[[series]", "is not TOML"),
}


@pytest.mark.parametrize("change", WRONG, ids=str)
def test_a_wrong_row_file_is_one_line(change, tmp_path):
    old, new, says = WRONG[change]
    text = (ROWS / "pytorch-ddp.toml").read_text()
    assert old in text
    path = tmp_path / "wrong.toml"
    path.write_text(text.replace(old, new))
    with pytest.raises(RowFileError) as raised:
        load_table(path)
    line = str(raised.value)
    assert line.startswith("wrong.toml: ")
    assert says in line
    assert "\n" not in line


def table_with(data: str) -> Table:
    given = tomllib.loads((ROWS / "pytorch-ddp.toml").read_text()) | {"data": data}
    return Table.model_validate(given)


def test_a_batch_is_where_the_published_run_has_it():
    events = [copy(1, None, 0, 10, 0), copy(2, None, 1, 10, 1), operator(3, 1)]
    made = recording(*events)
    made.model = ModelFacts(modules=1, parameters=1, buffers=1, parameter_bytes=4, buffer_bytes=4, parameter_sizes=(4,))
    changed = {data: as_published(made, t := table_with(data), t.series[0]) for data in Data}
    assert changed[Data.LOADER].events == made.events
    assert not [event for event in changed[Data.DEVICE].events if isinstance(event, Copy)]
    through, wait, onward = changed[Data.HOME].events[2:5]
    assert isinstance(wait, Wait)
    assert (through.source, through.destination, through.stream) == (None, 0, 0)
    assert (wait.stream, wait.after) == (1, (through.id,))
    assert (onward.id, onward.source, onward.destination, onward.stream) == (2, 0, 1, 1)
    assert changed[Data.LOADER].model.buffer_bytes == 0  # this table's DDP does not send buffers


def test_a_time_without_the_optimizer_ends_with_the_backward():
    made = recording(operator(1))
    made.events += [Mark(id=5, name="optimiser"), operator(6)]
    table = table_with("loader")
    ends = [as_published(made, table, table.series[0].model_copy(update={"optimiser": each})) for each in (True, False)]
    assert [len(each.events) for each in ends] == [4, 3]


def outcome(variant: str, predicted: float, measured: float, why_not: str | None = None, table: str = "t") -> Outcome:
    spread = Interval(predicted * 0.9, predicted, predicted * 1.1)
    return Outcome(
        table=table,
        model="m",
        variant=variant,
        machine="M",
        devices=2,
        why_not=why_not,
        factor=DEVICE,
        factor_mid=1.0,
        shrunk=0.0,
        one_device=100.0,
        one_device_alone=spread,
        predicted=spread,
        by_first=predicted * 2,
        alone=Interval(1, predicted * 3, 1e9),
        perfect=100.0,
        naive=predicted * 4,
        bound_by="host 100%",
        not_affine=(),
        measured=measured,
    )


def test_errors_are_of_the_claimed_rows():
    found = [
        outcome("ddp", 105, 100),
        outcome("ddp", 100, 125),
        outcome("ddp", 1, 100, "spec"),
        outcome("torch_dp", 110, 100),
    ]
    totals = {total.name: total for total in totals_of(found)}
    scaling = totals["DDP, scaling"]
    assert (scaling.cases, scaling.worst, scaling.is_missed) == (2, pytest.approx(0.25), True)
    assert scaling.median == pytest.approx((0.25 + (1 - 100 / 105)) / 2)
    assert totals["DDP, step"].worst == pytest.approx(2.1 - 1)  # with the factor of the table's first model
    assert totals["DP, step"].worst == pytest.approx(0.1)
    assert not totals["DP, step"].is_missed
    assert coverages_of(found)[0] == ("DDP", 1, 2)
    assert ("DP", 1, 1) in coverages_of(found)


def test_the_page_prints_what_is_missed_and_why():
    tables = {"t": table_with("loader").model_copy(update={"remark": "the ring is slower."})}
    found = [outcome("ddp", 105, 100), outcome("ddp", 100, 125), outcome("ddp", 1, 100, "no batch is said")]
    orders = [Order("t", "a", "b", Interval(1.1, 1.2, 1.3), 0.9)]
    lines = page("$ command", tables, found, orders, 0.8).splitlines()
    assert "| DDP, scaling | 2 | 14.9% | 25.0% | 7% | **missed** |" in lines
    assert "| inside, DDP | 2 | | 1 inside | 80% inside | **missed** |" in lines
    assert "- t: no batch is said." in lines
    assert "- t: the ring is slower." in lines
    assert "| t: a | b | 1.200 [1.100, 1.300] | 0.900 | **wrong** |" in lines
    (row,) = [line for line in lines if "| 125 |" in line]
    assert row.split(" | ")[6:11] == ["125", "**out**", "+25.0%", "+60.0%", "+140.0%"]


def test_an_order_is_claimed_only_where_the_interval_excludes_one():
    sure, open_ = (
        Order("t", "a", "b", Interval(1.1, 1.2, 1.3), 1.05),
        Order("t", "a", "b", Interval(0.9, 1.2, 1.3), 0.9),
    )
    assert (sure.is_claimed, sure.is_right) == (True, True)
    assert not open_.is_claimed
    assert not Order("t", "a", "b", Interval(1.1, 1.2, 1.3), 0.9).is_right


def test_a_source_is_widened_by_the_worst_row_of_the_others():
    rows = [outcome("ddp", 100, 80, table="a"), outcome("ddp", 100, 130, table="b"), outcome("ddp", 100, 95, table="b")]
    worst = {"a": 90 / 80, "b": 130 / 110}
    assert model_error_of(rows).ratio == pytest.approx(worst["b"])
    assert model_error_of([outcome("ddp", 100, 900, "spec")]) == EXACT
    found = left_out(rows)
    for row, other in zip(found, ("b", "a", "a"), strict=True):
        assert (row.predicted.low, row.predicted.high) == pytest.approx((90 / worst[other], 110 * worst[other]))
    (order,) = orders_left_out([Order("a", "x", "y", Interval(1.1, 1.2, 1.3), 0.9)], rows)
    assert order.predicted.low == pytest.approx(1.1 / worst["b"] ** 2**0.5)
    assert not order.is_claimed


def test_of_many_sources_a_tenth_may_be_worse_than_the_error():
    rows = [outcome("ddp", 100, 110 + i, table=str(i)) for i in range(1, 20)]
    assert model_error_of(rows).ratio == pytest.approx(128 / 110)  # the 18th of 19


def committed() -> list[Outcome]:
    """Return the outcomes of the committed predictions and rows."""
    measured = [case.measured_ms for table in load_tables().values() for each in table.series for case in each.cases]
    rows = json.loads(PREDICTIONS.read_text())
    given = [
        {key: Interval(**value) if isinstance(value, dict) else value for key, value in row.items()} for row in rows
    ]
    return [Outcome(**row, measured=ms) for row, ms in zip(given, measured, strict=True)]


def test_the_error_that_the_library_reads_is_what_the_rows_give():
    assert FILE.read_text() == error_text(model_error_of(committed())), RENEW


def test_the_pages_say_how_many_rows_are_inside_without_their_source():
    found = coverages_of(left_out(committed()))
    said = {name: f"{inside} of {count}" for name, inside, count in found}
    assert all(inside / count >= COVERAGE_AIM for _, inside, count in found)
    assert said["DDP"] == said["DDP, no factor"]  # so MODEL.md may say it once
    assert said["DP"] == said["DP, no factor"]
    page_lines = PAGE.read_text().splitlines()
    for name, inside, count in found:
        assert f"| inside, {name} | {count} | | {inside} inside | 80% inside | reached |" in page_lines
    root = PAGE.parents[1]
    for path in (root / "README.md", root / "dpbench" / "projection" / "MODEL.md"):
        assert f"{said['DDP']} DDP steps and {said['DP']} DataParallel steps" in path.read_text(), path


@pytest.mark.parametrize("path", sampled(FILES, 3), ids=lambda path: path.stem)
def test_the_committed_predictions_are_what_the_code_gives_now(path):
    committed = [each for each in json.loads(PREDICTIONS.read_text()) if each["table"] == path.stem]
    outcomes, _ = compared({path.stem: load_table(path)})
    now = json.loads(json.dumps(as_json(outcomes)))
    assert len(now) == len(committed), RENEW
    for one, other in zip(now, committed, strict=True):
        assert flat(one) == pytest.approx(flat(other), rel=3e-4), RENEW
        assert names(one) == names(other), RENEW


def flat(row: dict) -> dict:
    """Return the numbers of a row of predictions."""
    inner = {
        f"{key}.{name}": each for key, value in row.items() if isinstance(value, dict) for name, each in value.items()
    }
    return inner | {key: value for key, value in row.items() if isinstance(value, float | int)}


def names(row: dict) -> dict:
    return {key: value for key, value in row.items() if isinstance(value, str | list) and key != "bound_by"}
