"""Step times in order of time, whatever the lines and the places in time are, and where they changed for long. Pure.

    records.py   a line for each case, over commits or days
    gates.py     a line for each benchmark, over gates

The rule for a lasting change is the gate's (`stats/lasting_steps.py`): a step of more than 10 % that no later step
undoes. Applied to times it finds what became slower; applied to the steps a second it finds what became faster.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from dpbench.cases.case import Case
from dpbench.records.record import Environment
from dpbench.report.page.parts import DataRow
from dpbench.stats.lasting_steps import lasting_steps
from dpbench.stats.rounds import Estimate

SLOWER, FASTER = "slower", "faster"
THRESHOLD = 0.1
"""Lines are of a few rounds each, in new processes on all cores."""


@dataclass(frozen=True)
class Place:
    """A place on the axis of time: a commit, a day or a gate. `is_slower` is the verdict of a gate."""

    name: str
    day: str
    is_slower: bool = False


@dataclass(frozen=True)
class Point:
    """A step time in seconds at a place. `series` is what it is a line of. `cells` are further fields of its row."""

    place: Place
    series: str
    time: Estimate
    rounds: int
    commit: str | None
    cells: DataRow = field(default_factory=dict)


@dataclass(frozen=True)
class Line:
    """The points of a case or a benchmark, oldest first.

    `cells` name it in the table of changes.
    """

    name: str
    cells: DataRow
    points: Sequence[Point]
    case: Case | None = None


@dataclass(frozen=True)
class Change:
    """A lasting change of a line's step time, in seconds. `place` was the first to have `commit`, which began it."""

    line: str
    place: Place
    commit: str | None
    before_s: float
    after_s: float

    @property
    def times(self) -> float:
        """The time after the change over that before it."""
        return self.after_s / self.before_s

    @property
    def word(self) -> str:
        return SLOWER if self.times > 1 else FASTER

    @property
    def growth(self) -> str:
        """Return the growth of the time, such as ``+12.0 %``."""
        return f"{100 * (self.times - 1):+.1f} %"


@dataclass(frozen=True)
class History:
    """The places of one machine, each of which is `what`: a commit, a day or a gate; and the lines over them.

    Both are oldest first. `longest` is the number of points of the longest line that the rule takes. `changes` has the
    largest first; it is None without asv, which has the rule. `others` counts the pairs of times that are in no line.
    """

    what: str
    machine: Environment
    places: Sequence[Place]
    lines: Sequence[Line]
    longest: int
    changes: Sequence[Change] | None
    others: int = 0


def lasting_changes(times_s: Mapping[str, Sequence[float]]) -> list[tuple[str, int, float, float]]:
    """Return the line, the first point, and the levels before and after each lasting step, the largest first.

    Raise NoStepDetectionError without asv.
    """
    found = [
        *((name, *step) for name, own in times_s.items() for step in lasting_steps(own, THRESHOLD)),
        *(
            (name, start, 1 / before, 1 / after)
            for name, own in times_s.items()
            for start, before, after in lasting_steps([1 / time_s for time_s in own], THRESHOLD)
        ),
    ]
    return sorted(found, key=lambda each: -abs(each[3] / each[2] - 1))


def seconds_of(moment: str) -> float:
    """Return the seconds since 1970. A moment without a time zone is in UTC."""
    found = datetime.fromisoformat(moment)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
