"""What parent and children send to each other, as JSON.

Requests go to the child's stdin. Responses come through its record pipe.

    request         response           child
    RoundRequest    RoundResponse      child/round.py          measure one case in one round, in a fork
    ProbeRequest    MachineInfo        child/probe.py          report what this machine has
    CountJobs       CountRecords       child/count.py          count cases
    LockstepJobs    LockstepRounds     child/lockstep.py       a gate's round: base, twin and head alternate
    ListJobs        Listings           child/listing.py        the benchmarks of asv or pytest in a commit
    TraceJob        TraceRecord        child/trace.py          profile one step of a case
    AutoRequest     AutoChoices        child/auto_choice.py    what the wrapper chooses on described machines

Parent and child always belong to the same dpbench, so these messages carry no version.
"""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from dpbench.cases.case import Case
from dpbench.cases.names import Data
from dpbench.records.counts import CountRecord
from dpbench.records.record import Environment, Outcome
from dpbench.text.frozen import Frozen
from dpbench.trace.timeline import VariantTrace

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Job(Frozen):
    """Request to measure one case in one round. The answer is a `Record`.

    `sampling_s` is the time for samples alone. `measure/measurement.py` says when it is exceeded.
    """

    run: str = Field(min_length=1)
    case: Case
    round: int = Field(ge=0)
    sampling_s: float = Field(gt=0)


class LaunchedRank(Frozen):
    """The place of this machine's process among ranks that the user's launcher has started.

    Rank 0's process listens at `address` and `port`.
    """

    rank: int = Field(ge=0)
    address: str
    port: int


class RoundRequest(Frozen):
    """Request to the process of a round: measure a job within `timeout_s`. The response is an `Exit` as JSON.

    `launched` is this machine's rank, if the user's launcher has started the ranks.
    """

    job: Job
    timeout_s: float = Field(gt=0)
    launched: LaunchedRank | None = None


class ProbeRequest(Frozen):
    """Request to report what this machine has. The response is a `MachineInfo`.

    `workloads` are the user's factories to load with `data`; the response says which of them fail.
    """

    workloads: tuple[str, ...] = ()
    data: Data = Data.RANDOM


class CountJob(Frozen):
    """One case to count.

    The recording of simulated devices is written to the file `events`, if there is one. With `gradients` it says when
    each gradient is final. Without `numbers` the simulated devices compute shapes only; a case that fails so is counted
    again with numbers. With `thorough` the work on host tensors is counted too, and on CPU lanes the executed lines of
    Python, and what is done with threads. With `more_steps` above 0, so many further steps are taken on CPU lanes, and
    what they keep, collect and call is counted. With `uses` the wrapper's start and other uses are counted, and the
    choices of the default dispatch. A variant with the default dispatch chooses this `way` before it is counted. With
    `routes` the order of copies and the turns of lanes on simulated devices are counted too. With `details` the record
    says which lines of code cause the counters. `folder` is the folder of the commit whose wrapper is counted. None
    means the wrapper of the running dpbench.
    """

    case: Case
    events: str | None = None
    numbers: bool = True
    gradients: bool = False
    thorough: bool = False
    more_steps: int = Field(default=0, ge=0)
    uses: bool = False
    way: str = ""
    routes: bool = False
    details: bool = False
    folder: str | None = None


class CountJobs(Frozen):
    """Request to count cases. Each runs in a process of its own, for `timeout_s` at most."""

    jobs: tuple[CountJob, ...] = Field(min_length=1)
    timeout_s: float = Field(gt=0)


class CountRecords(Frozen):
    """Response to `CountJobs`: one record for each job, in their order."""

    records: tuple[CountRecord, ...]


class TraceJob(Frozen):
    """Request to profile one step of a case. The response is a `TraceRecord`."""

    case: Case


class TraceRecord(Frozen):
    """Response to `TraceJob`: the profiled step, or the reason why there is none."""

    trace: VariantTrace


class SideName(StrEnum):
    """The three sides of a gate's round. TWIN runs BASE in a second process: any difference of the two is noise."""

    BASE = "base"
    TWIN = "twin"
    HEAD = "head"


class Side(Frozen):
    """One side: the `folder` of its commit, and `environment` variables for its process alone."""

    folder: str
    environment: dict[str, str] = Field(default_factory=dict)


class SideReport(Frozen):
    """What a side sends to its coordinator: the seconds of its steps, or the outcome and the reason of its failure.

    `number` are the calls of a step, which a borrowed benchmark has calibrated. `way` is what the wrapper's default
    dispatch chose in its trials.
    """

    steps_s: tuple[Seconds, ...] = ()
    number: int = Field(1, ge=1)
    way: str = ""
    outcome: Outcome = Outcome.OK
    reason: str = ""


class LockstepJob(Frozen):
    """One benchmark in one round.

    Each side takes `blocks` blocks of steps, of about `block_s` seconds each, or fewer if a step is longer. `cores` are
    the cores to which all sides are pinned. `seed` decides the order of the sides in each block. `timeout_s` is the
    limit for each side. With `checked`, each side's step is compared with the oracle before it is timed.
    """

    benchmark: str
    case: Case
    sides: dict[SideName, Side]
    cores: tuple[int, ...] = Field(min_length=1)
    blocks: int = Field(ge=1)
    block_s: float = Field(gt=0)
    timeout_s: float = Field(gt=0)
    seed: int
    checked: bool = True


class Timed(StrEnum):
    """What a benchmark times: a step, or a part of a new process' start."""

    STEP = "step"
    IMPORT = "import"
    CONSTRUCTION = "construction"
    FIRST_FORWARD = "first_forward"


class StartUpJob(Frozen):
    """Benchmarks of one start-up in one round, by name.

    Each side starts `forks` times, in a fork of a process that has not imported the wrapper, pinned to `cores`. `seed`
    decides the order of the sides. `timeout_s` is the limit for each fork.
    """

    benchmarks: dict[str, Timed] = Field(min_length=1)
    case: Case
    sides: dict[SideName, Side]
    cores: tuple[int, ...] = Field(min_length=1)
    forks: int = Field(ge=1)
    timeout_s: float = Field(gt=0)
    seed: int


class LockstepJobs(Frozen):
    """Request for one round. The start-ups and then the benchmarks run one after the other."""

    jobs: tuple[LockstepJob, ...]
    start_ups: tuple[StartUpJob, ...] = ()

    @model_validator(mode="after")
    def _is_not_empty(self) -> Self:
        if not self.jobs and not self.start_ups:
            raise ValueError("jobs and start_ups are empty; one of them needs an entry")
        return self


class LockstepRound(Frozen):
    """The step times of one benchmark in one round.

    `times_s` has for each side a list of blocks, and for each block the seconds of its steps. Each side ran once in
    block i, in random order. `cores` are the cores to which the sides were pinned, as in ``0-3,8``. `resident` is True
    if the models of all sides were in memory together. If not, each block ran in a process of its own. A failed round
    has a `reason` and no times. If one side failed, `side` is its name. A good round's reason is a note on its times.
    """

    benchmark: str
    outcome: Outcome
    reason: str | None = None
    side: SideName | None = None
    times_s: dict[SideName, tuple[tuple[Seconds, ...], ...]] = Field(default_factory=dict)
    cores: str = ""
    resident: bool = True

    @model_validator(mode="after")
    def _only_ok_has_numbers(self) -> Self:
        if self.outcome is Outcome.OK:
            lengths = {len(self.times_s.get(side, ())) for side in SideName}
            if len(lengths) != 1 or lengths == {0}:
                raise ValueError("outcome ok needs the same number of blocks for base, twin and head, at least one")
        elif self.times_s or self.reason is None:
            raise ValueError(f"outcome {self.outcome} needs a reason and has no times")
        return self


class LockstepRounds(Frozen):
    """Response to `LockstepJobs`: one round for each benchmark, and the child's environment."""

    rounds: tuple[LockstepRound, ...]
    environment: Environment


class ListJob(Frozen):
    """The benchmarks that a `text` means in the suite of a commit's `folder`. `pattern` is as in gate/settings.py."""

    suite: str
    text: str
    pattern: bool
    folder: str


class ListJobs(Frozen):
    """Request to list and try benchmarks, each in a fork of its own, for `timeout_s` at most."""

    jobs: tuple[ListJob, ...]
    timeout_s: float = Field(gt=0)


class Listed(Frozen):
    """A benchmark by its name in its suite. `version` is a hash of its own code, or empty if the suite has none.

    `is_value` is whether it gives a value and no time. `refused` says why it cannot be borrowed. If `is_skipped`, its
    owner skips it here. `timeouts_s` are the suite's own limits for the benchmark and for its cache, if it has some.
    """

    name: str
    version: str = ""
    is_value: bool = False
    refused: str | None = None
    is_skipped: bool = False
    timeouts_s: tuple[float, ...] = ()


class Listing(Frozen):
    """The benchmarks that a job means, and the names of `all`. `problems` are errors at import, a line each.

    `notes` are on the suite as a whole.
    """

    meant: tuple[Listed, ...] = ()
    all: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Listings(Frozen):
    """Response to `ListJobs`, in their order."""

    listings: tuple[Listing, ...]


class DescribedLinks(Frozen):
    """The links of a described machine. `peers` reach each other's memory, as (source, destination)."""

    devices: int = Field(ge=1)
    peers: tuple[tuple[int, int], ...]
    # source and destination of a copy, None for the host, and the names of the links that it takes
    hops: tuple[tuple[int | None, int | None, tuple[str, ...]], ...]
    # of each direction of a link: bytes/s, and the seconds of latency of a copy
    links: dict[str, tuple[float, float]]


class AutoRequest(Frozen):
    """Request for what the wrapper's policy "auto" means on some machines. The response is `AutoChoices`."""

    machines: tuple[DescribedLinks, ...]


class AutoChoice(Frozen):
    """The route that "auto" takes on a machine, and the ways of dispatch that it measures there.

    `whole_buckets` is whether a chain there passes buckets on whole.
    """

    route: str
    whole_buckets: bool
    dispatches: tuple[str, ...]


class AutoChoices(Frozen):
    """The choices in the order of the request's machines."""

    machines: tuple[AutoChoice, ...]
