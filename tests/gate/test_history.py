"""Series over commits, from lines of the history and from records of other runs."""

import pytest

from dpbench.gate.history import Point, Series, series_of
from dpbench.records.readings import TELEMETRY, DeviceTelemetry, Reading
from dpbench.records.record import Environment, Record
from tests.gate.making_history import line, series, times
from tests.records.making import ENVIRONMENT, METRICS, case, failed, ok

DATES = {"a": 10.0, "b": 20.0, "c": 30.0}


def at(commit: str | None, **fields: object) -> Environment:
    return ENVIRONMENT.model_copy(update={"commit": commit, "dirty": False, **fields})


def test_base_and_head_of_each_line_are_points_in_the_order_of_commits() -> None:
    lines = [line("b", "c", times("wide", 2, 3)), line("a", "b", times("wide", 1, 2), times("narrow", 7, 8))]
    histories, notes = series_of(lines, [], DATES, ENVIRONMENT)
    assert histories == (
        Series("wide", (Point("a", 10, 1), Point("b", 20, 2), Point("c", 30, 3))),
        Series("narrow", (Point("a", 10, 7), Point("b", 20, 8))),
    )
    assert notes == ()


def test_a_commit_that_was_measured_often_is_one_point_at_the_median() -> None:
    lines = [line("a", "b", times("wide", base, head)) for base, head in ((1, 5), (9, 6), (2, 5.5))]
    ((wide,), _) = series_of(lines, [], DATES, ENVIRONMENT)
    assert wide.points == (Point("a", 10, 2), Point("b", 20, 5.5))


def test_the_working_tree_is_no_point() -> None:
    ((wide,), notes) = series_of([line("a", None, times("wide", 1, 2))], [], DATES, ENVIRONMENT)
    assert wide.points == (Point("a", 10, 1),)
    assert notes == ()


def test_commits_unknown_to_git_are_left_out_with_one_note() -> None:
    lines = [line("a", "x" * 40, times("wide", 1, 2), times("narrow", 1, 2)), line("y", "z", times("gone", 1, 2))]
    histories, notes = series_of(lines, [], DATES, ENVIRONMENT)
    assert [(history.benchmark, len(history.points)) for history in histories] == [("wide", 1), ("narrow", 1)]
    assert notes == ("history: measured commits that this repository does not have were left out: xxxxxxxxxx, y, z",)
    many = [line("a", f"{number}", times("wide", 1, 2)) for number in range(8)]
    assert series_of(many, [], DATES, ENVIRONMENT)[1][0].endswith("left out: 0, 1, 2, 3, 4 and 3 more")


def test_commits_of_one_second_stay_in_the_order_of_measuring() -> None:
    lines = [line("z", "y", times("wide", 1, 2)), line("y", "x", times("wide", 2, 3))]
    ((wide,), _) = series_of(lines, [], dict.fromkeys("xyz", 5.0), ENVIRONMENT)
    assert [point.commit for point in wide.points] == ["z", "y", "x"]


@pytest.mark.parametrize("change", [{"hostname": "there"}, {"torch": "2.14.0"}, {"affinity": "0"}, {"gil": True}])
def test_two_machines_never_mix(change: dict[str, object]) -> None:
    other = ENVIRONMENT.model_copy(update=change)
    lines = [line("a", "b", times("wide", 1, 1)), line("a", "b", times("wide", 100, 100), environment=other)]
    records = [
        ok(case(), 0, [1.0], environment=at("a")),
        ok(case(), 1, [100.0], environment=at("a", **change)),
    ]
    for environment, step_s in ((ENVIRONMENT, 1), (other, 100)):
        histories, _ = series_of(lines, records, DATES, environment)
        assert len(histories) == 2
        assert {point.step_s for history in histories for point in history.points} == {step_s}


def test_another_version_of_dpbench_is_the_same_machine() -> None:
    there = ENVIRONMENT.model_copy(update={"dpbench": "9", "commit": "c", "dirty": True})
    ((wide,), _) = series_of([line("a", "b", times("wide", 1, 2), environment=there)], [], DATES, ENVIRONMENT)
    assert len(wide.points) == 2


def test_a_benchmark_that_became_another_case_has_only_the_new_one() -> None:
    lines = [
        line("a", "b", times("wide", 1, 1, case="small"), times("narrow", 1, 1)),
        line("b", "c", times("wide", 9, 9, case="large")),
    ]
    narrow, wide = series_of(lines, [], DATES, ENVIRONMENT)[0]
    assert (narrow.benchmark, wide.benchmark) == ("narrow", "wide")
    assert [point.step_s for point in wide.points] == [9, 9]
    assert [point.step_s for point in narrow.points] == [1, 1]


def test_records_of_clean_commits_are_series_by_case_with_medians_over_rounds() -> None:
    records = [
        ok(case(), 0, [1.0, 2.0, 90.0], environment=at("a")),
        ok(case(), 1, [4.0], environment=at("a")),
        ok(case(), 2, [9.0], environment=at("a")),
        ok(case(), 0, [5.0], environment=at("b"), run="another"),
        ok(case(batch=32), 0, [7.0], environment=at("b")),
    ]
    first, second = series_of([], records + records[:1], DATES, ENVIRONMENT)[0]
    assert first == Series(case().id, (Point("a", 10, 4), Point("b", 20, 5)))
    assert second == Series(case(batch=32).id, (Point("b", 20, 7),))


def test_a_records_point_is_the_time_of_one_step() -> None:
    several = case().model_copy(update={"steps_per_sample": 20})
    records = [ok(measured, 0, [2.0], environment=at("a")) for measured in (several, case())]
    histories = series_of([], records, DATES, ENVIRONMENT)[0]
    assert {history.benchmark: history.points[0].step_s for history in histories} == {several.id: 0.1, case().id: 2.0}


def throttled(record: Record) -> Record:
    silent = Reading(reason="not on this GPU")
    gpu = DeviceTelemetry(
        uuid="GPU-a", window_s=1, throttled_s={"power": Reading(value=0.5)}, **dict.fromkeys(TELEMETRY, silent)
    )
    return record.model_copy(update={"metrics": METRICS.model_copy(update={"telemetry": {"cuda:0": gpu}})})


@pytest.mark.parametrize(
    "record",
    [
        failed(case(), 0, "crashed", "it did"),
        ok(case("naive"), 0, environment=at("a")),
        ok(case(), 0, environment=at("a", dirty=True)),
        ok(case(), 0, environment=at("a", dirty=None)),
        ok(case(), 0, environment=at(None)),
        throttled(ok(case(), 0, environment=at("a"))),
    ],
)
def test_records_without_a_usable_time_of_a_clean_commit_are_no_points(record: Record) -> None:
    assert series_of([], [record], DATES, ENVIRONMENT) == ((), ())


def test_points_have_a_day() -> None:
    assert [point.day for point in series([1, 1]).points] == ["1970-01-01", "1970-01-02"]
