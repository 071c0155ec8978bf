"""Make judgements by hand."""

from datetime import date

from dpbench.gate.judgement import (
    Accepted,
    CounterChange,
    Drift,
    FalseAlarms,
    Judgement,
    Revision,
    TimeJudgement,
    Verdict,
)
from dpbench.judge.estimate import Estimate
from tests.records.making import ENVIRONMENT

HOSTILE = (
    "a|b `c` <script>alert(1)</script> <!-- dpbench gate --> [red]r[/red] [l](http://x.y) ![i](http://x.y) 100% "
    "::error::d ##[error]e @octocat #1 :tada: ]]> & \"q\" 'q' *s* _u_ ~~t~~ \\ $m$\n::error::f\r\n# h\x00\x07"
    "\x1b[31m\x9b31m\u202eg\u2028h\ufffe\ud800i"
)
"""Text that a commit's subject or a reason may hold."""

COUNTS, STEP, LANES = "counts tuned mlp/tiny", "step tuned mlp/tiny", "step tuned convnet/tiny on all cores"
ACCEPTED = Accepted(benchmark="counts *", revision="v2", reason="pays for B7", expires=date(2027, 1, 31))
FALSE_ALARMS = FalseAlarms(
    alarms=0, of=2000, upper=0.0015, gates="resampled from 60 rounds of the self-test of 2026-11-21 on this machine"
)


def ratio(value: float, half: float = 0.01) -> Estimate:
    return Estimate(value=value, low=value - half, high=value + half)


def time(benchmark: str = STEP, verdict: str = "pass", **fields: object) -> TimeJudgement:
    defaults = {
        "why": f"why {verdict}",
        "threshold": 0.02,
        "rounds": 24,
        "looks": 3,
        "cores": "1",
        "base_step_s": 0.010,
        "head_step_s": 0.0101,
        "ratio": ratio(1.01),
        "twin": Estimate(value=1.001, low=0.997, high=1.005),
        "detectable": 0.011,
    }
    return TimeJudgement.model_validate({**defaults, "benchmark": benchmark, "verdict": Verdict(verdict), **fields})


def unmeasured(benchmark: str = STEP, verdict: str = "broken") -> TimeJudgement:
    nothing = {"base_step_s": None, "head_step_s": None, "ratio": None, "twin": None, "detectable": None}
    return time(benchmark, verdict, rounds=0, looks=0, **nothing)


def counter(base: int | None = 2000, head: int | None = 2001, **fields: object) -> CounterChange:
    defaults = {"benchmark": COUNTS, "counter": "forward operators", "is_worse": True}
    return CounterChange.model_validate({**defaults, "base": base, "head": head, **fields})


def drift(**fields: object) -> Drift:
    defaults = {"benchmark": "drifting", "before_s": 0.02, "after_s": 0.023, "since_commit": "c" * 40, "points": 9}
    return Drift.model_validate({**defaults, "since": "2026-10-01", **fields})


def judged(verdict: str = "pass", **fields: object) -> Judgement:
    defaults = {
        "why": f"for a reason of {verdict}",
        "base": Revision(asked="main", commit="0123456789" * 4, subject="The base"),
        "head": Revision(asked="HEAD", commit="fedcba9876" * 4, subject="The head"),
        "tiers": (0, 1, 2),
        "started_at": "2026-11-21T18:00:00Z",
        "duration_s": 272.4,
        "alarm_rate": 0.01,
        "environment": ENVIRONMENT,
    }
    return Judgement.model_validate({**defaults, "verdict": Verdict(verdict), **fields})


PASS = judged(counted_cases=420, times=(time(),), false_alarms=FALSE_ALARMS)
SLOWER = judged(
    "slower",
    counted_cases=420,
    counters=(
        counter(),
        counter(5, 4, counter="copies sim:0->sim:1", is_worse=False),
        counter(None, 7, counter="new kernels", is_worse=None),
    ),
    times=(time(), time(LANES, "slower", head_step_s=0.01052, ratio=Estimate(value=1.052, low=1.041, high=1.063))),
    drifts=(drift(),),
    false_alarms=FALSE_ALARMS,
    notes=("the working tree is dirty; the commit is judged",),
)
UNDECIDED = judged("undecided", times=(time(verdict="undecided", detectable=0.09),), false_alarms=FALSE_ALARMS)
BROKEN = judged("broken", tiers=(0, 1), head=Revision(asked="no-such", commit=None), environment=None)
ALL_ACCEPTED = judged(
    counted_cases=420,
    counters=(counter(accepted=ACCEPTED),),
    times=(time(LANES, "slower", ratio=ratio(1.2), accepted=ACCEPTED),),
    drifts=(drift(accepted=ACCEPTED),),
)
EVIL = judged(
    "slower",
    why=HOSTILE,
    base=Revision(asked=HOSTILE, commit="0123456789" * 4, subject=HOSTILE),
    head=Revision(asked=HOSTILE, commit=None, subject=HOSTILE),
    started_at=HOSTILE,
    counted_cases=1,
    counters=(
        counter(benchmark=HOSTILE, counter=HOSTILE),
        counter(
            benchmark="x", accepted=Accepted(benchmark=HOSTILE, revision=HOSTILE, reason=HOSTILE, expires=date.max)
        ),
    ),
    times=(time(HOSTILE, "slower", why=HOSTILE, cores=HOSTILE),),
    drifts=(drift(benchmark=HOSTILE, since=HOSTILE, since_commit=HOSTILE),),
    notes=(HOSTILE,),
    false_alarms=FalseAlarms(alarms=1, of=2, upper=0.9, gates=HOSTILE),
)
EVERY = {
    "pass": PASS,
    "slower": SLOWER,
    "undecided": UNDECIDED,
    "broken": BROKEN,
    "accepted": ALL_ACCEPTED,
    "evil": EVIL,
    "one broken": judged("broken", times=(unmeasured(), unmeasured(LANES, "undecided"))),
}
