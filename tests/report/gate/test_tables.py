"""The rows of the tables, which several forms print."""

from dpbench.report.gate.tables import (
    acceptances,
    counters_grid,
    drifts_grid,
    precision_grid,
    slowest_first,
    times_grid,
    worst_first,
)
from tests.report.gate.making_gate import ACCEPTED, LANES, SLOWER, STEP, counter, drift, judged, ratio, time, unmeasured


def test_a_changed_counter_has_both_values_and_whether_it_is_worse() -> None:
    grid = counters_grid(SLOWER)
    assert [row[1:] for row in grid.rows] == [
        ("forward operators", "2,000", "2,001", "worse"),
        ("new kernels", "-", "7", "differs"),
        ("copies sim:0->sim:1", "5", "4", "better"),
    ]
    assert grid.below == ()
    assert [grid.headers[2], grid.headers[3]] == sorted(grid.numbers)


def test_many_counters_of_one_benchmark_hide_no_other_benchmark() -> None:
    many = [counter(1, 100 + n, benchmark="first", counter=f"counter {n}") for n in range(30)]
    grid = counters_grid(judged(counters=(*many, counter(100, 101, benchmark="second"))))
    assert [row[0] for row in grid.rows[:3]] == ["first", "second", "first"]
    assert len(grid.rows) == 20
    assert grid.below == ("... and 11 more",)


def test_worse_counters_come_first_then_by_growth_and_accepted_ones_last() -> None:
    found = [
        counter(100, 50, counter="better", is_worse=False),
        counter(1, 9, counter="accepted", accepted=ACCEPTED),
        counter(100, 900, counter="differs", is_worse=None),
        counter(1000, 1010, counter="one percent"),
        counter(None, 1, counter="new"),
        counter(0, 3, counter="from none"),
        counter(10, 11, counter="ten percent"),
    ]
    assert [change.counter for change in worst_first(found)] == (
        ["new", "from none", "ten percent", "one percent", "differs", "better", "accepted"]
    )


def test_times_share_a_unit_and_slower_ones_come_first() -> None:
    times = (time("fast", ratio=ratio(0.5)), time("accepted", "slower", accepted=ACCEPTED), time(LANES, "slower"))
    grid = times_grid(judged(times=(*times, unmeasured("none"))))
    assert grid.headers == ("benchmark", "base, ms", "head, ms", "change", "head / base", "verdict")
    assert grid.rows == (
        (LANES, "10.0", "10.1", "+1.0 %", "1.010 [1.000, 1.020]", "slower"),
        ("accepted", "10.0", "10.1", "+1.0 %", "1.010 [1.000, 1.020]", "slower, accepted"),
        ("none", "-", "-", "-", "-", "broken"),
        ("fast", "10.0", "10.1", "-50.0 %", "0.500 [0.490, 0.510]", "pass"),
    )


def test_the_slowest_of_a_verdict_comes_first() -> None:
    times = [time("a", "undecided"), time("b", "slower", ratio=ratio(1.1)), time("c", "slower", ratio=ratio(1.3))]
    assert [found.benchmark for found in slowest_first(times)] == ["c", "b", "a"]


def test_precision_has_the_tolerated_growth_the_detectable_growth_and_the_noise() -> None:
    grid = precision_grid(judged(times=(time(), unmeasured(LANES))))
    assert grid.rows == (
        (LANES, "2 %", "-", "-", "0, 0", "1"),
        (STEP, "2 %", "1.1 %", "1.001 [0.997, 1.005]", "24, 3", "1"),
    )


def test_drifts_have_the_commit_and_date_that_began_them() -> None:
    found = (drift(), drift(benchmark="larger", after_s=0.04, accepted=ACCEPTED))
    grid = drifts_grid(judged(drifts=found))
    since = "cccccccccc, 2026-10-01"
    assert grid.rows == (
        ("larger", "20.0", "40.0", "+100.0 %", since, "9", "slower, accepted"),
        ("drifting", "20.0", "23.0", "+15.0 %", since, "9", "slower"),
    )


def test_rows_that_are_left_out_are_counted() -> None:
    times = tuple(time(f"step {n}") for n in range(7))
    for grid in (times_grid, precision_grid):
        assert len(grid(judged(times=times), 5).rows) == 5
        assert grid(judged(times=times), 5).below == ("... and 2 more",)
        assert grid(judged(times=times)).below == grid(judged(times=times), 7).below == ()
    drifts = judged(drifts=(drift(), drift()))
    assert drifts_grid(drifts, 1).below == ("... and 1 more",)


def test_each_accepted_entry_is_listed_once() -> None:
    found = judged(
        counters=(counter(accepted=ACCEPTED), counter()), times=(time(accepted=ACCEPTED),), drifts=(drift(),)
    )
    assert list(acceptances(found)) == [ACCEPTED]
