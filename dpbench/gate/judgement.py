"""The result of a gate as plain data. The names of its fields are part of the format that `gate_json` writes."""

from datetime import date
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from dpbench.judge.decision import Verdict
from dpbench.judge.estimate import Estimate
from dpbench.records.record import Environment
from dpbench.text.validated import Frozen

Share = Annotated[float, Field(allow_inf_nan=False)]
"""As a share, 0.05 is 5 %."""
Quantity = Literal["median", "mean", "later"]
"""gate/rounds.py defines them."""


class Revision(Frozen):
    """One of the two commits: the text that was typed, the full hash, and the first line of the message.

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


class Accepted(Frozen):
    """`benchmark` is a name or a pattern."""

    benchmark: str
    revision: str
    reason: str
    expires: date


class State(StrEnum):
    """What became of a changed counter. All but WORSE pass; DIFFERENT has no better direction."""

    WORSE = "worse"
    TOLERATED = "tolerated"
    NOTED = "noted"
    ACCEPTED = "accepted"
    DIFFERENT = "different"
    BETTER = "better"


class CounterChange(Frozen):
    """A counter of one case, or a value that a borrowed benchmark tracks, that differs between base and head.

    `base` or `head` is None if that commit does not have the counter. `is_worse` is None if the counter has no better
    direction. `traded_for` names the benchmarks whose measured times outvote it.
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
        """A missing counter counts as 0."""
        return (self.head or 0) - (self.base or 0)

    @property
    def state(self) -> State:
        if self.accepted is not None:
            return State.ACCEPTED
        if self.traded_for is not None:
            return State.NOTED
        if self.tolerated:
            return State.TOLERATED
        return {True: State.WORSE, None: State.DIFFERENT, False: State.BETTER}[self.is_worse]


class Cause(Frozen):
    """Code that changed a counter, and its parts of the counter on both sides.

    `what` is an operator, the size of a copy, a call of the host, or a Python function with its file and line. `lines`
    are head's, or base's if head has none. `text` is the first such line. `is_changed` is whether the commit changed
    the function. `base` and `head` are 0 if the counter's events are not known to pass through it.
    """

    what: str
    function: str
    file: str
    lines: tuple[int, ...]
    text: str
    base: int = 0
    head: int = 0
    is_changed: bool = False

    def unproven(self) -> "Cause":
        return self.model_copy(update={"what": "changed", "base": 0, "head": 0})


class Blame(Frozen):
    """The code that made a counter worse: the largest causes, and how many `more` there are."""

    benchmark: str
    counter: str
    causes: tuple[Cause, ...] = ()
    more: int = 0


class TimeJudgement(Frozen):
    """The verdict on one benchmark of tier 1, with the measured times, which are medians over rounds.

    `ratio`, `mean` and `later` are as in gate/rounds.py; the last two are None for start-ups. The verdict rests on
    `quantity`, one of the three. `twin` is the ratio of base's twin to base in the same rounds. `threshold` is the
    tolerated growth, and `detectable` the smallest one that is called slower nine times in ten with this noise.
    `set_up` is the time of a borrowed benchmark's set-up by base's, if it changed.
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
    ratio: Estimate | None = None
    twin: Estimate | None = None
    mean: Estimate | None = None
    later: Estimate | None = None
    quantity: Quantity = "median"
    detectable: Share | None = None
    set_up: Share | None = None
    accepted: Accepted | None = None

    @property
    def decisive(self) -> Estimate | None:
        """None if nothing was measured."""
        return {"median": self.ratio, "mean": self.mean, "later": self.later}[self.quantity]


class Drift(Frozen):
    benchmark: str
    before_s: Share
    after_s: Share
    since_commit: str
    since: str
    points: int
    accepted: Accepted | None = None


class FalseAlarms(Frozen):
    """How often equal code was called slower on this machine. `upper` is the upper end of the share's 95 % interval.

    `gates` says what was counted: resampled gates of a self-test, or the twins of earlier gates.
    """

    alarms: int
    of: int
    upper: Share
    gates: str


class Judgement(Frozen):
    """`why` is one line, and so is each of `notes`, which change no verdict.

    `alarm_rate` is what the decision rule allows a whole suite by design, and `false_alarms` what was measured.
    `uncounted_cases` are those of tier 0 that neither commit can count.
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
