"""What parent and children send to each other, as JSON (`task.py`): requests to stdin, answers through the record pipe.

Both always belong to the same dpbench, so messages carry no version.
"""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from dpbench.cases.case import Case
from dpbench.cases.names import Data
from dpbench.engine.wrapper_of import built_of
from dpbench.records.count_record import CountRecord
from dpbench.records.record import Environment, Outcome
from dpbench.text.validated import Frozen
from dpbench.trace.timeline import VariantTrace

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Job(Frozen):
    """`sampling_s` is for samples alone, and may be exceeded (`measure/measurement.py`)."""

    run: str = Field(min_length=1)
    case: Case
    round: int = Field(ge=0)
    sampling_s: float = Field(gt=0)


class LaunchedRank(Frozen):
    """The place of this machine's process among ranks that the user's launcher has started."""

    rank: int = Field(ge=0)
    address: str
    port: int


class RoundRequest(Frozen):
    """The response is an `Exit` as JSON."""

    job: Job
    timeout_s: float = Field(gt=0)
    launched: LaunchedRank | None = None


class ProbeRequest(Frozen):
    """`workloads` are the user's factories; the response says which fail."""

    workloads: tuple[str, ...] = ()
    data: Data = Data.RANDOM


class CountJob(Frozen):
    """Simulated devices write their recording to `events`; with `gradients` it says when each gradient is final.

    - `numbers`: without them, devices compute shapes only; a case that fails so is counted again with numbers.
    - `thorough`: also work on host tensors, and on CPU lanes the executed lines of Python and work with threads.
    - `more_steps`: taken on CPU lanes for what they keep, collect and call.
    - `way`: what the default dispatch chooses before the count.
    - `routes`: also the order of copies and the turns of lanes on simulated devices.
    - `details`: also the lines of code that cause the counters. `changed` are the lines that a commit changed, by the
      file's path in `folder`.
    - `folder`: the commit whose wrapper is counted, None for the running dpbench.
    """

    case: Case
    events: str | None = None
    numbers: bool = True
    gradients: bool = False
    thorough: bool = False
    more_steps: int = Field(default=0, ge=0)
    way: str = ""
    routes: bool = False
    details: bool = False
    changed: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    folder: str | None = None

    def changed_files(self) -> dict[str, tuple[int, ...]]:
        """`changed` by full path, in the commit and in what is built of it."""
        folder = Path(self.folder or ".")
        built = {str(built_of(folder) / path.removeprefix("src/")): lines for path, lines in self.changed.items()}
        return built | {str(folder / path): lines for path, lines in self.changed.items()}

    def imported(self) -> tuple[str, ...]:
        """The files of `changed` that this process has imported."""
        files = {str(getattr(module, "__file__", None)) for module in list(sys.modules.values())}
        return tuple(path for path in self.changed if any(file.endswith(path.removeprefix("src/")) for file in files))


class CountJobs(Frozen):
    """Each case runs in a process of its own, for `timeout_s` at most."""

    jobs: tuple[CountJob, ...] = Field(min_length=1)
    timeout_s: float = Field(gt=0)


class CountRecords(Frozen):
    """Records in the order of the jobs. `note` is a line for the user."""

    records: tuple[CountRecord, ...]
    note: str | None = None


class TraceJob(Frozen):
    case: Case


class TraceRecord(Frozen):
    trace: VariantTrace


class SideName(StrEnum):
    """TWIN runs BASE in a second process: any difference of the two is noise."""

    BASE = "base"
    TWIN = "twin"
    HEAD = "head"


class Side(Frozen):
    """Only the side's process has the variables of `environment`."""

    folder: str
    environment: dict[str, str] = Field(default_factory=dict)


class SideReport(Frozen):
    """The seconds of a side's steps, or the outcome and the reason of its failure.

    `number` are the calls of a step, as a borrowed benchmark has calibrated; 0 if it can be called once. `way` is what
    the default dispatch chose.
    """

    steps_s: tuple[Seconds, ...] = ()
    number: int = Field(1, ge=0)
    way: str = ""
    outcome: Outcome = Outcome.OK
    reason: str = ""


class LockstepJob(Frozen):
    """Each side takes `blocks` blocks of steps, of about `block_s` seconds, pinned to `cores`, for `timeout_s` at most.

    `seed` decides the order of the sides in each block. With `checked`, each side's step is compared with the oracle
    before its first block and after its last one.
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
    STEP = "step"
    IMPORT = "import"
    CONSTRUCTION = "construction"
    FIRST_FORWARD = "first_forward"


class StartUpJob(Frozen):
    """Benchmarks of one start-up in one round, by name.

    Each side starts `forks` times from a process without the wrapper. `seed` decides the order of the sides.
    `timeout_s` is for each fork.
    """

    benchmarks: dict[str, Timed] = Field(min_length=1)
    case: Case
    sides: dict[SideName, Side]
    cores: tuple[int, ...] = Field(min_length=1)
    forks: int = Field(ge=1)
    timeout_s: float = Field(gt=0)
    seed: int


class LockstepJobs(Frozen):
    """One round: the start-ups, then the benchmarks."""

    jobs: tuple[LockstepJob, ...]
    start_ups: tuple[StartUpJob, ...] = ()

    @model_validator(mode="after")
    def _is_not_empty(self) -> Self:
        if not self.jobs and not self.start_ups:
            raise ValueError("jobs and start_ups are empty; one of them needs an entry")
        return self


class LockstepRound(Frozen):
    """`times_s` has for each side a list of blocks, and for each block the seconds of its steps.

    `cores` is text, as in ``0-3,8``. `resident` is whether the models of all sides were in memory together. A failed
    round has a `reason`, the `side` that failed if it is one, and no times. A good round's reason is a note.
    `set_up` is the time that head's set-up takes by base's, None if there is none or it is short.
    """

    benchmark: str
    outcome: Outcome
    reason: str | None = None
    side: SideName | None = None
    times_s: dict[SideName, tuple[tuple[Seconds, ...], ...]] = Field(default_factory=dict)
    set_up: Seconds | None = None
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
    rounds: tuple[LockstepRound, ...]
    environment: Environment


class ListJob(Frozen):
    """What a `text` means in the suite of a commit's `folder`; `pattern` is as in gate/settings.py."""

    suite: str
    text: str
    pattern: bool
    folder: str


class ListJobs(Frozen):
    jobs: tuple[ListJob, ...]
    timeout_s: float = Field(gt=0)


class Listed(Frozen):
    """`version` is a hash of the benchmark's code, empty if the suite has none.

    `is_value` is whether it gives a value and no time, `is_first_call` whether it measures the first call of a process
    alone. `refused` says why it cannot be borrowed. If `is_skipped`, its
    owner skips it here. `timeouts_s` are the suite's limits for the benchmark and its cache.
    """

    name: str
    version: str = ""
    is_value: bool = False
    is_first_call: bool = False
    refused: str | None = None
    is_skipped: bool = False
    timeouts_s: tuple[float, ...] = ()


class Listing(Frozen):
    """The benchmarks that a job means, and the names of `all`. `problems` are errors at import, a line each."""

    meant: tuple[Listed, ...] = ()
    all: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Listings(Frozen):
    """Listings in the order of the jobs."""

    listings: tuple[Listing, ...]


class CompileJob(Frozen):
    """What to compile: `places` in `folder`, files without ``.py`` or folders."""

    folder: str
    places: tuple[str, ...]


class DescribedLinks(Frozen):
    """`peers` reach each other's memory, as (source, destination)."""

    devices: int = Field(ge=1)
    peers: tuple[tuple[int, int], ...]
    # source and destination of a copy, None for the host, and the names of the links that it takes
    hops: tuple[tuple[int | None, int | None, tuple[str, ...]], ...]
    # of each direction of a link: bytes/s, and the seconds of latency of a copy
    links: dict[str, tuple[float, float]]


class AutoRequest(Frozen):
    machines: tuple[DescribedLinks, ...]


class AutoChoice(Frozen):
    """The route of "auto" on a machine, and the ways of dispatch that it measures.

    `whole_buckets` is whether a chain passes buckets on whole.
    """

    route: str
    whole_buckets: bool
    dispatches: tuple[str, ...]


class AutoChoices(Frozen):
    machines: tuple[AutoChoice, ...]
