"""The result of a gate as plain data, for `dpbench.report.gate` to print.

`gate_json` writes these fields as they are called here. Their names are part of the file format.
"""

from datetime import date
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from dpbench.records.record import Environment

Share = Annotated[float, Field(allow_inf_nan=False)]
"""A finite number. As a share, 0.05 is 5 %."""
Quantity = Literal["median", "mean", "later"]
"""What of the steps is compared, as gate/rounds.py defines it."""


class Verdict(StrEnum):
    """The answer to "is head slower than base?".

    FASTER: one benchmark passes, and its interval excludes no change. BROKEN: the gate could not measure.
    """

    PASS = "pass"  # noqa: S105
    FASTER = "faster"
    SLOWER = "slower"
    UNDECIDED = "undecided"
    BROKEN = "broken"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Revision(_Frozen):
    """One of the two commits.

    `asked` is the text that was typed, `commit` the full hash, `subject` the first line of the commit's message.
    `commit` is None for the working tree. If base is the merge base of `asked` and head, and not `asked` itself, then
    `tip` is the commit that `asked` names.
    """

    asked: str
    commit: str | None
    subject: str = ""
    tip: str | None = None

    @property
    def short(self) -> str:
        """The first 10 digits of the hash, or ``worktree``."""
        return self.commit[:10] if self.commit else "worktree"


class Accepted(_Frozen):
    """A regression that the project accepts until `expires`.

    `benchmark` is a name or a pattern such as ``my_step*``. `revision` is the commit that made it slower.
    """

    benchmark: str
    revision: str
    reason: str
    expires: date


class TimeRatio(_Frozen):
    """Head's step time divided by base's: the estimate and the ends of its 95 % interval."""

    value: Share
    low: Share
    high: Share


class State(StrEnum):
    """What became of a changed counter. All but WORSE pass; DIFFERENT has no better direction."""

    WORSE = "worse"
    TOLERATED = "tolerated"
    TRADED = "traded"
    ACCEPTED = "accepted"
    DIFFERENT = "different"
    BETTER = "better"


class CounterChange(_Frozen):
    """A counter of one case, or a value that a borrowed benchmark tracks, that differs between base and head.

    `base` or `head` is None if that commit does not have the counter. `is_worse` is None if the counter has no better
    direction. A worse counter is `tolerated` if it grew by at most what the settings say. `traded_for` names the
    benchmarks whose measured times outvote it.
    """

    benchmark: str
    counter: str
    base: int | Share | None
    head: int | Share | None
    is_worse: bool | None
    accepted: Accepted | None = None
    tolerated: bool = False
    traded_for: str | None = None

    @property
    def more(self) -> float:
        """Head's count minus base's. A missing counter counts as 0."""
        return (self.head or 0) - (self.base or 0)

    @property
    def state(self) -> State:
        """What became of the change."""
        if self.accepted is not None:
            return State.ACCEPTED
        if self.traded_for is not None:
            return State.TRADED
        if self.tolerated:
            return State.TOLERATED
        return {True: State.WORSE, None: State.DIFFERENT, False: State.BETTER}[self.is_worse]


class Cause(_Frozen):
    """Code that changed a counter: `base` and `head` are its parts of the counter on both sides.

    `what` is an operator, the size of a copy, a call of the host, or a Python function with its file and line. It was
    done by `function` in these `lines` of `file`: head's, or base's if head has none. `text` is the first such line.
    """

    what: str
    function: str
    file: str
    lines: tuple[int, ...]
    text: str
    base: int
    head: int


class Blame(_Frozen):
    """The code that made a counter worse: the largest causes, and how many `more` there are.

    Counters that are known as a whole only, such as peak memory, have no blame.
    """

    benchmark: str
    counter: str
    causes: tuple[Cause, ...] = ()
    more: int = 0


class TimeJudgement(_Frozen):
    """The verdict on one benchmark of tier 1, with the measured times.

    `base_step_s` and `head_step_s` are medians over rounds. `ratio` is that of median blocks, `mean` that of the means
    of all steps. `later` is how much more head's steps grow from the first to the last quarter of a round. The last two
    are None for start-ups. The verdict rests on one of the three: `quantity`. `twin` is the ratio of base's twin to
    base in the same rounds.

    `threshold` is the tolerated growth. `detectable` is the smallest growth that the gate calls slower nine times in
    ten, with this noise and this number of rounds. Both growths are shares: 0.01 is 1 %. `looks` counts the interim
    analyses of these rounds.
    """

    benchmark: str
    verdict: Verdict
    why: str
    threshold: Share
    rounds: int
    looks: int  # the file format's name for the number of interim analyses
    cores: str
    base_step_s: Share | None = None
    head_step_s: Share | None = None
    ratio: TimeRatio | None = None
    twin: TimeRatio | None = None
    mean: TimeRatio | None = None
    later: TimeRatio | None = None
    quantity: Quantity = "median"
    detectable: Share | None = None
    accepted: Accepted | None = None

    @property
    def decisive(self) -> TimeRatio | None:
        """The ratio on which the verdict rests; None if nothing was measured."""
        return {"median": self.ratio, "mean": self.mean, "later": self.later}[self.quantity]


class Drift(_Frozen):
    """A lasting step up in a benchmark's history of step times, which no single gate saw."""

    benchmark: str
    before_s: Share
    after_s: Share
    since_commit: str
    since: str
    points: int
    accepted: Accepted | None = None


class FalseAlarms(_Frozen):
    """How often equal code was called slower on this machine.

    `upper` is the upper end of the share's 95 % interval. `gates` says what was counted: resampled gates of a
    self-test, or the twins of earlier gates.
    """

    alarms: int
    of: int
    upper: Share
    gates: str


class Judgement(_Frozen):
    """The whole result of one gate.

    `verdict` covers all tiers in `tiers`, which are 0, 1 and 2. `why` is one line. Each of `notes` is one line that
    changes no verdict. `alarm_rate` is the false-alarm rate of a whole suite that the decision rule allows by design.
    `uncounted_cases` are those of tier 0 that neither commit can count. `blames` has the code behind worse counters.
    `false_alarms` is the measured rate, or None if none was measured.
    """

    verdict: Verdict
    why: str
    base: Revision
    head: Revision
    tiers: tuple[int, ...]
    started_at: str
    duration_s: Share
    alarm_rate: Share
    counted_cases: int = 0
    uncounted_cases: int = 0
    counters: tuple[CounterChange, ...] = ()
    blames: tuple[Blame, ...] = ()
    times: tuple[TimeJudgement, ...] = ()
    drifts: tuple[Drift, ...] = ()
    notes: tuple[str, ...] = ()
    false_alarms: FalseAlarms | None = None
    environment: Environment | None = None
