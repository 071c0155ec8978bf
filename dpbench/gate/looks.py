"""When a gate looks at its rounds, and how much of its risk each look may spend. Pure.

Looking again and again at the same data finds something sooner or later. Look k may therefore spend 1/2^k of the risk:
however many looks there are, the sum stays below the whole, whatever binds them together (Bonferroni's inequality);
the benchmarks of a suite share the risk evenly, for the same reason.
"""

from collections.abc import Iterator

FIRST = 5
_GROWTH = 1.4


def looks() -> Iterator[int]:
    """After how many rounds: 5, 7, 10, 14, 19, 27, ..."""
    rounds = float(FIRST)
    while True:
        yield round(rounds)
        rounds *= _GROWTH


def spent_at(look: int, risk: float) -> float:
    """Of the whole `risk`, by look 1, 2, ..."""
    assert look >= 1
    return float(risk / 2**look)
