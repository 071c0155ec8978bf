import numpy as np
import pytest

from dpbench.doctor.self_test import noise_of
from dpbench.judge.estimate import ratio_of_rounds

RNG = np.random.default_rng(7)


def rounds(count: int, spread: float, factor: float = 1.0) -> list[list[float]]:
    return [[factor * float(np.exp(RNG.normal(0, spread)))] * 3 for _ in range(count)]


def test_the_spread_is_the_standard_deviation_of_the_rounds_medians() -> None:
    noise = noise_of(rounds(500, 0.1), rounds(500, 0.1))
    assert noise.spread == pytest.approx(0.105, abs=0.01)
    assert noise.rounds == 500


def test_a_slowdown_of_the_detectable_size_is_found_nine_times_in_ten() -> None:
    detectable = float(np.mean([noise_of(rounds(8, 0.05), rounds(8, 0.05)).detectable for _ in range(300)]))
    detected = 0
    for _ in range(1000):
        ratio = ratio_of_rounds(rounds(8, 0.05, 1 + detectable), rounds(8, 0.05))
        detected += ratio.low is not None and ratio.low > 1
    assert 0.85 < detected / 1000 < 0.97


def test_more_rounds_find_smaller_changes() -> None:
    few, many = (noise_of(rounds(count, 0.05), rounds(count, 0.05)).detectable for count in (4, 64))
    assert many < few


def test_cases_look_unequal_if_the_interval_excludes_one() -> None:
    a = [[1.0], [1.01], [0.99]]
    assert not noise_of(a, a).looks_unequal
    assert noise_of(a, [[2 * t for t in samples] for samples in a]).looks_unequal


@pytest.mark.parametrize(("first", "second"), [([[1.0]], [[1.0]]), ([[1.0]] * 3, [[1.0]] * 2)])
def test_too_few_rounds_are_refused(first: list[list[float]], second: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="two or more"):
        noise_of(first, second)
