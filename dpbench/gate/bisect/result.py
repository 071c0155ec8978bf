"""The steps and the outcome of a bisection as plain data."""

from pydantic import BaseModel, ConfigDict

from dpbench.gate.bisect.search import CommitAnswer
from dpbench.gate.judgement import Blame, CommitFacts, CounterChange


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class BisectStep(_Frozen):
    """One commit and its answer. `why` is one line: the counter, the ratio of times, or the error."""

    commit: CommitFacts
    answer: CommitAnswer
    why: str


class Bisection(_Frozen):
    """The outcome. `measured` names the counter or the benchmark.

    `suspects` are the commits of which one is the first bad one, oldest first; a single one is found. `last_good` is
    the commit before them. A found commit has the `change` of the counter from `last_good` to it, with its `blame`.
    """

    measured: str
    good: CommitFacts
    bad: CommitFacts
    commits: int
    steps: tuple[BisectStep, ...]
    last_good: CommitFacts
    suspects: tuple[CommitFacts, ...]
    change: CounterChange | None = None
    blame: Blame | None = None

    @property
    def first_bad(self) -> CommitFacts | None:
        return self.suspects[0] if len(self.suspects) == 1 else None
