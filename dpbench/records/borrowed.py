"""What is known of a borrowed benchmark: its name and kind, and the counts of one call."""

from enum import StrEnum

from pydantic import Field

from dpbench.records.details import Detail
from dpbench.text.frozen import Frozen


class Suite(StrEnum):
    """The framework that a benchmark is written for."""

    ASV = "asv"
    PYTEST = "pytest"


class Kind(StrEnum):
    """What a benchmark gives: the time of a call, or a value that is equal in each process."""

    TIME = "time"
    VALUE = "value"


class Listed(Frozen):
    """A benchmark of a suite. `name` is asv's, with its parameters, or pytest's node id.

    `version` is a hash of the benchmark's own code, or empty if the framework has none. `refused` says why it cannot be
    borrowed.
    """

    name: str
    kind: Kind = Kind.TIME
    version: str = ""
    refused: str | None = None


class Listing(Frozen):
    """The benchmarks of a suite in one commit. `problems` are the last lines of errors at import."""

    benchmarks: tuple[Listed, ...] = ()
    problems: tuple[str, ...] = ()


class Examined(Frozen):
    """One call of a benchmark: its exact counters by name, or its `value` if its kind is VALUE.

    A value that the benchmark does not have is None. `details` are the code behind counters, if asked for. `is_torch`
    is whether the call needs torch.
    """

    counters: dict[str, int] = Field(default_factory=dict)
    details: tuple[Detail, ...] = ()
    value: float | None = None
    unit: str = ""
    is_torch: bool = False
