"""Which techniques the wrapper uses: each is a switch, so that its worth can be measured by turning it off."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

MIB = 1024 * 1024


class Dispatch(StrEnum):
    """Who calls the replicas: long-lived threads, the caller one after the other, or whichever measures faster."""

    THREADS = "threads"
    SEQUENCE = "sequence"
    AUTO = "auto"


@dataclass(frozen=True)
class Policy:
    """The user's choices, checked when made. All combinations give the same numbers, but for the random ones that
    lanes on threads draw from a generator that they share: those come in any order. "auto" has none of it where the
    generator is a default one of torch, since it looks at those before and after; it sees nothing of Python's, NumPy's
    or a module's own, nor of what ``torch.random.fork_rng`` puts back.

    `bucket_bytes` caps what travels together; the stock wrapper's is 10 MiB too. `first_bucket_bytes` is
    smaller so that the first layers can start early; it is used only where it costs no extra message.
    `skip_unchanged` does not send again the parameters that provably did not change: opt in only if nothing
    writes to them through ``.data``, NumPy, their storage, another process, or a kernel that raises no version
    counter (``torch.distributed.broadcast``, a fused one outside a ``torch.optim.Optimizer``), or call
    `DataParallel.mark_dirty` after such a write.
    `host_staged` sends what goes between devices through the host even where the direct way passed its trial.

    The functions take a policy too, and of it what a single call on the caller's own streams can use: `replicate`
    the buckets and `host_staged`, `scatter` and `gather` `host_staged`, `parallel_apply` `dispatch`,
    `data_parallel` all of these.
    """

    cache_replicas: bool = True
    coalesce: bool = True
    bucket_bytes: int = 10 * MIB
    first_bucket_bytes: int = 1 * MIB
    overlap_broadcast: bool = True
    overlap_reduce: bool = True
    overlap_copies: bool = True
    skip_unchanged: bool = False
    host_staged: bool = False
    dispatch: Dispatch = Dispatch.AUTO

    def __post_init__(self) -> None:
        for name in ("bucket_bytes", "first_bucket_bytes"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"Policy.{name} is {value!r}; a whole number of bytes from 1 up is allowed")
        for name in _SWITCHES:
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise ValueError(f"Policy.{name} is {value!r}; True and False are allowed")
        if self.dispatch not in list(Dispatch):
            allowed = ", ".join(repr(kind.value) for kind in Dispatch)
            raise ValueError(f"Policy.dispatch is {self.dispatch!r}; {allowed} are allowed")
        object.__setattr__(self, "dispatch", Dispatch(self.dispatch))


_SWITCHES = (
    "cache_replicas",
    "coalesce",
    "overlap_broadcast",
    "overlap_reduce",
    "overlap_copies",
    "skip_unchanged",
    "host_staged",
)
DEFAULT_POLICY = Policy()


def check_policy(policy: Any) -> None:
    if not isinstance(policy, Policy):
        raise TypeError(f"policy is {policy!r}; a Policy is allowed")
