"""Find the first bad of a row of commits, of which some cannot be asked. Pure.

good   0   1   2   3   4   5   6 = bad
       .   .   .   ?   .   .              the middle first
       .   x   .   3 is bad               then the middle of what is left; x gives no answer: its neighbours next
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum


class CommitAnswer(StrEnum):
    """What a commit is. SKIPPED: it cannot be measured, or its measurement decides nothing."""

    GOOD = "good"
    BAD = "bad"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Suspects:
    """The commits after `last_good`, up to and including `first_known_bad`. -1 is the good end itself."""

    last_good: int
    first_known_bad: int

    @property
    def is_found(self) -> bool:
        return self.first_known_bad == self.last_good + 1


def find_first_bad(count: int, ask: Callable[[int], CommitAnswer]) -> Suspects:
    """Return where the first bad of `count` commits is. The last one is bad, and is never asked.

    Each commit is asked once at most. If only skipped commits are left between a good and a bad one, all of them and
    the bad one are suspects.
    """
    assert count >= 1
    good, bad = -1, count - 1
    skipped: set[int] = set()
    while open_ones := [each for each in range(good + 1, bad) if each not in skipped]:
        inside = sum(good < each < bad for each in skipped)
        wanted = good + (bad - good) * _fraction(inside)
        chosen = min(open_ones, key=lambda each: abs(each - wanted))
        match ask(chosen):
            case CommitAnswer.GOOD:
                good = chosen
            case CommitAnswer.BAD:
                bad = chosen
            case CommitAnswer.SKIPPED:
                skipped.add(chosen)
    return Suspects(good, bad)


def _fraction(number: int) -> float:
    """Return 1/2, 1/4, 3/4, 1/8, 5/8, ...: after commits without an answer the next one lies far from them."""
    return next(fraction for index, fraction in enumerate(_halvings()) if index == number)


def _halvings() -> Iterator[float]:
    """Yield van der Corput's sequence in base 2."""
    number = 1
    while True:
        yield sum(0.5 ** (place + 1) for place in range(number.bit_length()) if number >> place & 1)
        number += 1
