"""What all ranks must have in common before the first case."""

import platform
import socket
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

import dpbench
from dpbench.cases.host import commit_of
from dpbench.cases.spec import Spec
from dpbench.jobs.launched.world import World
from dpbench.text.outside import one_line
from dpbench.text.validated import Frozen

Text = Annotated[str, AfterValidator(one_line)]
"""Text from another machine, so without a terminal's commands."""
COMMON = ("world", "dpbench", "commit", "torch", "python", "spec")


class RankFacts(Frozen):
    """With an `error`, the rank's line on wrong input, there is no `spec`."""

    rank: int
    host: Text
    world: str
    dpbench: str
    commit: str | None
    torch: str | None
    python: str
    spec: str | None = None
    error: Text | None = None

    @property
    def name(self) -> str:
        return f"rank {self.rank} on {self.host}"


def facts_of_this_rank(world: World, spec: Spec | None, error: str | None = None) -> RankFacts:
    commit, dirty = commit_of(Path(dpbench.__file__).parent)
    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = None
    return RankFacts(
        rank=world.rank,
        host=socket.gethostname(),
        world=world.shape,
        dpbench=dpbench.__version__,
        commit=f"{commit} with changes" if dirty else commit,
        torch=torch,
        python=platform.python_version(),
        spec=None if spec is None else spec.model_dump_json(by_alias=True),
        error=error,
    )


def disagreement(ranks: Sequence[RankFacts]) -> str | None:
    """One line on the first rank that differs from rank 0; None if all agree."""
    first = ranks[0]
    hosts: dict[int, str] = {first.rank: first.host}
    for rank in ranks[1:]:
        if rank.rank in hosts:
            return f"{rank.name}: is there twice, also on {hosts[rank.rank]}; allowed: each rank once"
        hosts[rank.rank] = rank.host
        if rank.error is not None:
            return f"{rank.name}: {rank.error}"
        for field in COMMON:
            own_value, other_value = getattr(first, field), getattr(rank, field)
            if own_value != other_value:
                what = "is another" if field == "spec" else f"is {other_value!r}"
                than = f"than that of {first.name}" if field == "spec" else f"and {own_value!r} on {first.name}"
                return f"{rank.name}: {field} {what} {than}; allowed: the same on all ranks"
    return None
