"""The published rows: their files, the constants and errors that they give, and the page."""

import tomllib
from dataclasses import replace

import pytest

from benchmarks.instruments.projection import models
from benchmarks.instruments.projection.fit import Row, excess, fit, needed, rows_of, with_errors
from benchmarks.instruments.projection.outcomes import claimed, outcomes_of, totals_of
from benchmarks.instruments.projection.published import as_published
from benchmarks.instruments.projection.row_file import ROWS, Data, RowFileError, Table, load_table, load_tables
from benchmarks.instruments.projection.validate import PAGE, counts_file, counts_of, fitted_text
from dpbench.projection.machine_file import load_machine
from dpbench.projection.step_counts import StepCounts
from dpbench.projection.step_sum import FILE, Fitted, Part, fitted
from dpbench.records.recording import ModelFacts

FILES = sorted(ROWS.glob("*.toml"))
RENEW = "run `python -m benchmarks.instruments.projection.validate`, and say in the commit why the sum may change"
INSIDE_AIM = 0.8
BEST = {"DDP": (0.040, 0.126), "DataParallel": (0.043, 0.076)}
"""Median and worst error of one device's step plus the bytes over the bandwidth."""


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return rows_of(load_tables(), counts_of)


@pytest.fixture(scope="module")
def outcomes(rows):
    return outcomes_of(rows)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_row_file_is_complete_and_names_what_exists(path):
    table = load_table(path)
    assert table.address.startswith("https://")
    for series in table.series:
        module, _, name = series.workload.partition(":")
        assert module == models.__name__
        assert callable(getattr(models, name))
        assert series.one_device_from in (None, *(file.stem for file in FILES))
        for case in series.cases:
            assert load_machine(case.machine).devices >= (case.devices or 1)
    for key in needed(table):
        assert counts_file(*key).is_file(), (
            f"{key}: run `python -m benchmarks.instruments.projection.validate --record`"
        )


WRONG = {
    "no address": ('address = "https', 'adress = "https', "address: missing"),
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


MODEL = ModelFacts(modules=1, parameters=1, buffers=1, parameter_bytes=4, buffer_bytes=4, parameter_sizes=(4,))


def test_a_batch_is_where_the_published_run_has_it():
    sent = {f"sent/input/host/{i}/bytes": 10.0 * (i + 1) for i in range(3)}
    counts = StepCounts(3, 3, {**sent, "turns": 0}, MODEL)
    changed = {data: as_published(counts, t := table_with(data), t.series[0]) for data in Data}
    assert changed[Data.LOADER].numbers == counts.numbers
    assert changed[Data.DEVICE].numbers == {"turns": 0}
    assert changed[Data.HOME].below("sent") == {
        "input/host/0/bytes": 60, "scatter/0/1/bytes": 20, "scatter/0/2/bytes": 30,
    }  # fmt: skip
    assert changed[Data.LOADER].model.buffer_bytes == 0  # this table's DDP does not send buffers


def test_a_time_without_the_optimizer_has_none_of_its_work():
    numbers = {"work/0/optimiser/kernels": 1.0, "host/optimiser/0/view": 1.0, "work/0/forward/kernels": 1.0}
    table = table_with("loader")
    counts = as_published(
        StepCounts(1, 1, numbers, MODEL), table, table.series[0].model_copy(update={"optimiser": False})
    )
    assert (counts.numbers, counts.model.parameters) == ({"work/0/forward/kernels": 1.0}, 0)


def test_a_table_is_predicted_without_itself(rows):
    name = "pytorch-ddp"
    faster = [
        replace(row, case=row.case.model_copy(update={"measured_ms": 1e6})) if row.table == name else row
        for row in rows
    ]
    assert with_errors(faster, {name}) == with_errors(rows, {name})
    assert fit(faster, ()).beside != fit(rows, ()).beside
    borrowed = [row for row in rows if row.series.one_device_from is not None]
    assert {row.series.one_device_from for row in borrowed} == {name}
    assert fit(borrowed, ()).speed_float32 == 1  # else its time would count twice


def test_without_rows_nothing_is_fitted(rows):
    assert with_errors(rows, {row.table for row in rows}) == Fitted()


def test_the_errors_are_no_larger_than_those_of_the_best_simple_sum(outcomes):
    totals = {total.name: total for total in totals_of(outcomes)}
    for scheme, (median, worst) in BEST.items():
        naive, ours = totals[f"{scheme}: one device plus bytes over bandwidth"], totals[f"{scheme}: the sum"]
        assert (naive.median, naive.worst) == pytest.approx((median, worst), abs=0.0006)
        assert ours.median <= median
        assert ours.worst <= worst
        assert ours.inside >= INSIDE_AIM * ours.cases


def test_a_row_is_inside_if_its_error_is_no_larger_than_that_of_the_others(outcomes):
    for outcome in claimed(outcomes):
        low, high = outcome.predicted / outcome.ratio_error, outcome.predicted * outcome.ratio_error
        assert outcome.is_inside == (low <= outcome.measured <= high)
    assert excess(2, 1) == excess(1, 2) == 2


def test_the_constants_that_the_library_reads_are_what_the_rows_give(rows):
    assert FILE.read_text() == fitted_text(with_errors(rows)), RENEW
    assert fitted().ratio_error >= 1


def test_the_page_has_the_rows_and_their_sums(outcomes):
    lines = PAGE.read_text().splitlines()
    for total in totals_of(outcomes):
        inside = "" if total.inside is None else total.inside
        line = f"| {total.name} | {total.cases} | {total.median:.1%} | {total.worst:.1%} | {inside} |"
        assert line in lines, RENEW
    for outcome in claimed(outcomes):
        computation = f"{1e3 * outcome.sum.parts[Part.COMPUTE]:.1f}"
        named = [line for line in lines if f"| {outcome.row.table} | {outcome.row.series.model} |" in line]
        assert any(f"| {computation} |" in line for line in named), RENEW
    for outcome in outcomes:
        if not outcome.row.is_claimed:
            reasons = [line for line in lines if line.startswith(f"- {outcome.row.table}: {outcome.row.why_not}.")]
            assert any(f"{outcome.error(outcome.predicted):+.1%}" in line for line in reasons), RENEW


def test_the_pages_say_how_many_rows_are_inside(outcomes):
    totals = {total.name: total for total in totals_of(outcomes)}
    ddp, stock = totals["DDP: the sum"], totals["DataParallel: the sum"]
    said = f"{ddp.inside} of {ddp.cases} DDP steps and {stock.inside} of {stock.cases} DataParallel steps"
    root = PAGE.parents[1]
    for path in (root / "README.md", root / "dpbench" / "projection" / "MODEL.md"):
        assert said in " ".join(path.read_text().split()), path
