"""What a gate found, whole, for those who print it. Data alone."""

from datetime import date
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from dpbench.results.record import Environment

Share = Annotated[float, Field(allow_inf_nan=False)]
"""0.05 is 5 %."""


class Verdict(StrEnum):
    PASS = "pass"  # noqa: S105
    SLOWER = "slower"
    UNDECIDED = "undecided"
    BROKEN = "broken"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Revision(_Frozen):
    """`asked` is as it was typed, `commit` the full hash, `subject` the first line of its message. None: the tree."""

    asked: str
    commit: str | None
    subject: str = ""

    @property
    def short(self) -> str:
        return self.commit[:10] if self.commit else "worktree"


class Accepted(_Frozen):
    """A regression that somebody answers for. `benchmark` may be a pattern such as ``counts *``."""

    benchmark: str
    revision: str
    reason: str
    expires: date


class TimeRatio(_Frozen):
    """Head's time over base's: the estimate, and the ends of its 95 % interval."""

    value: Share
    low: Share
    high: Share


class CounterChange(_Frozen):
    """A counter of one case that differs between base and head; None where one of them does not have it.

    `is_worse` is None for a counter of which neither more nor less is better.
    """

    benchmark: str
    counter: str
    base: int | None
    head: int | None
    is_worse: bool | None
    accepted: Accepted | None = None


class TimeJudgement(_Frozen):
    """One benchmark of tier 1.

    `base_step_s` and `head_step_s` are medians over rounds. `twin` is the ratio of base to itself, from the same
    rounds. `threshold` is the growth that is tolerated, `detectable` the smallest growth that as many rounds of this
    noise call slower nine times in ten; both are shares. `looks` says how often the rounds were judged.
    """

    benchmark: str
    verdict: Verdict
    why: str
    threshold: Share
    rounds: int
    looks: int
    cores: str
    base_step_s: Share | None = None
    head_step_s: Share | None = None
    ratio: TimeRatio | None = None
    twin: TimeRatio | None = None
    detectable: Share | None = None
    accepted: Accepted | None = None


class Drift(_Frozen):
    """A step up in the history of a benchmark that is still there, and no single gate saw."""

    benchmark: str
    before_s: Share
    after_s: Share
    since_commit: str
    since: str
    points: int
    accepted: Accepted | None = None


class FalseAlarms(_Frozen):
    """How often identical code was called slower on this machine, and the upper end of its 95 % interval.

    `gates` tells what was counted: resampled gates of a self-test, or the twins of the gates so far.
    """

    alarms: int
    of: int
    upper: Share
    gates: str


class Judgement(_Frozen):
    """The whole. `verdict` is over all tiers that were asked for; `tiers` are 0, 1, 2.

    `why` is one line. `notes` are things to know that change no verdict, each one line. `alarm_rate` is the rate
    that the rule allows for a whole suite by design; `false_alarms` is what was measured, None where nothing was.
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
    counters: tuple[CounterChange, ...] = ()
    times: tuple[TimeJudgement, ...] = ()
    drifts: tuple[Drift, ...] = ()
    notes: tuple[str, ...] = ()
    false_alarms: FalseAlarms | None = None
    environment: Environment | None = None
