import pytest

from dpbench.analysis.compare_variants import compare
from tests.records.making import case, ok


def winner(**times_s):
    """Return the winner of variants with these times of their rounds."""
    places = {"single": "cpu", "single[compile=default]": "cpu"}
    records = [
        ok(case(name, places.get(name, "cpu*2")), number, [time_s])
        for name, rounds in times_s.items()
        for number, time_s in enumerate(rounds)
    ]
    return compare(records).comparisons[0].winner


STEADY = (1.0, 1.01, 0.99, 1.0, 1.0)


def times(factor):
    return tuple(factor * time_s for time_s in STEADY)


def test_the_shortest_step_wins_if_its_interval_is_apart():
    ranking = winner(naive=times(2), tuned=times(1), ddp=times(1.5))
    assert ranking.best.case.variant == "tuned"
    assert list(ranking.slower) == ["ddp", "naive"]
    assert ranking.rivals == ()


def test_a_scheme_whose_interval_contains_one_is_a_rival():
    ranking = winner(naive=times(2), tuned=times(1), ddp=times(1.001))
    assert ranking.rivals == ("ddp",)


def test_limits_do_not_win_and_one_device_may_be_faster_than_all():
    ranking = winner(single=times(0.5), floor=times(0.4), naive=times(2), tuned=times(1))
    assert ranking.best.case.variant == "tuned"
    assert ranking.alone.value == pytest.approx(2)
    assert ranking.is_slower_than_one_device
    assert not winner(single=times(1), tuned=times(1)).is_slower_than_one_device


def test_one_round_decides_nothing():
    assert winner(naive=(2.0,), tuned=(1.0,)).rivals == ("naive",)


def test_without_times_of_a_scheme_there_is_no_winner():
    assert winner(single=times(1)) is None


def test_the_best_scheme_is_held_against_the_fastest_single():
    compiled = "single[compile=default]"
    ranking = winner(**{"single": times(2), compiled: times(0.5), "tuned": times(1)})
    assert ranking.single.case.variant == compiled
    assert ranking.alone.value == pytest.approx(2)
    assert ranking.is_slower_than_one_device
