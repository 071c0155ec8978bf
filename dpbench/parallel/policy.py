"""The wrapper's techniques: each has a switch, so that its effect can be measured."""

import math
from dataclasses import dataclass, fields
from enum import StrEnum
from numbers import Real
from typing import Any

MIB = 1024 * 1024
Shares = tuple[float, ...]
_ALLOWED = (
    "None, or a tuple with a finite number for each lane is allowed; the first number must be above 0, the "
    "others from 0 up, with zeros at the end only"
)


class Dispatch(StrEnum):
    THREADS = "threads"
    SEQUENCE = "sequence"
    AUTO = "auto"


class Route(StrEnum):
    """AUTO chooses from the links (`routes.py`)."""

    AUTO = "auto"
    STAR = "star"
    CHAIN = "chain"
    NCCL = "nccl"


@dataclass(frozen=True)
class Policy:
    """The user's choices, checked when made.

    Raises ValueError, with the field's name, for a wrong value.

    All combinations give the same numbers, except batch norm with other `shares`, and random numbers that lanes
    draw from a generator they share. In sequence lane 0 draws all of its numbers first, then lane 1. On threads the
    order is undefined. Under "auto" replicas that draw from torch's default generators run in sequence. Draws from
    other generators are not seen: Python's, NumPy's, a module's own, and those in ``torch.random.fork_rng``.

    `dispatch` "auto" takes what measures faster, in sequence or on threads. Replicas that wait for each other run on
    threads from then on, with a warning. Compiled replicas always run in sequence (COMPILED.md).

    `bucket_bytes` limits the tensors that are sent together; the stock wrapper's limit is 10 MiB too.
    `first_bucket_bytes` is smaller so that the first layers can start early. It is used only if that costs no message.
    `skip_unchanged` does not send parameters again that provably have not changed. Writes through ``.data``, NumPy,
    the storage or another process are not seen. Nor are kernels that raise no version counter, such as
    ``torch.distributed.broadcast``, or a fused kernel outside a ``torch.optim.Optimizer``. After such a write call
    `DataParallel.mark_dirty`.
    `graphs` launches a lane's forward and backward as CUDA graphs, without the module's Python code (GRAPHS.md). What
    a graph cannot do runs eagerly (`DataParallel.graph_report`). It needs CUDA devices.
    `check_graphs` compares the first graphs of each kind of step with eager steps, gradients included, and lets the
    kind run eagerly if they differ. The module's Python code and hooks on weights then run more often.
    `host_staged` sends copies between devices through the host, even if the direct link passed its test.
    `whole_buckets` sends a bucket whole on any link, also along a chain (`routes.py`).
    `route` decides which lane sends weights to which lane. Gradients go back the same way. "nccl" needs CUDA devices
    with a lane each. Three lanes or more take under "auto" what measures faster, so two runs may add gradients in
    another order.
    `shares` cuts the batch unevenly: a tuple of numbers, one for each lane, such as ``(1, 2, 2)``. The first is above
    0, and zeros are allowed at the end, where they mean fewer lanes (`chunk_sizes`). None gives equal chunks.

    The functions take a policy too, and use the fields that serve one call on the caller's own streams: `replicate`
    the buckets, `route` and `host_staged`; `scatter` `shares` and `host_staged`; `gather` `host_staged`;
    `parallel_apply` `dispatch`; `data_parallel` all of these.
    """

    cache_replicas: bool = True
    coalesce: bool = True
    bucket_bytes: int = 10 * MIB
    first_bucket_bytes: int = 1 * MIB
    overlap_broadcast: bool = True
    overlap_reduce: bool = True
    overlap_copies: bool = True
    skip_unchanged: bool = False
    graphs: bool = False
    check_graphs: bool = False
    whole_buckets: bool = False
    host_staged: bool = False
    dispatch: Dispatch = Dispatch.AUTO
    route: Route = Route.AUTO
    shares: Shares | None = None

    @property
    def ways(self) -> tuple[Dispatch, ...]:
        """The ways to call replicas that the policy allows; "auto" measures them in this order."""
        is_auto = self.dispatch is Dispatch.AUTO
        return (Dispatch.SEQUENCE, Dispatch.THREADS) if is_auto else (self.dispatch,)

    def __post_init__(self) -> None:
        for name in ("bucket_bytes", "first_bucket_bytes"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"Policy.{name} is {value!r}; a whole number of bytes from 1 up is allowed")
        for name in [field.name for field in fields(self) if field.type is bool]:
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise ValueError(f"Policy.{name} is {value!r}; True and False are allowed")
        for name, kinds in (("dispatch", Dispatch), ("route", Route)):
            value = getattr(self, name)
            if value not in list(kinds):
                allowed = ", ".join(repr(kind.value) for kind in kinds)
                raise ValueError(f"Policy.{name} is {value!r}; {allowed} are allowed")
            object.__setattr__(self, name, kinds(value))
        object.__setattr__(self, "shares", checked_shares(self.shares))


def checked_shares(shares: Any) -> Any:
    """`Policy.shares` as None or a tuple of floats; raises ValueError for anything else."""
    if shares is None:
        return None
    error = ValueError(f"Policy.shares is {shares!r}; {_ALLOWED}")
    if not isinstance(shares, tuple | list) or not all(
        isinstance(share, Real) and not isinstance(share, bool) for share in shares
    ):
        raise error
    try:
        numbers = tuple(float(share) for share in shares)
    except OverflowError:
        raise error from None
    used = sum(number > 0 for number in numbers)
    if not used or not all(math.isfinite(number) for number in numbers):
        raise error
    if min(numbers[:used]) <= 0 or any(numbers[used:]):
        raise error
    return numbers


def shares_of_lanes(shares: Any, lanes: int) -> Shares | None:
    """The shares of the lanes that get items; None if all lanes get equal chunks.

    Raises ValueError unless there is one share for each lane.
    """
    if shares is None:
        return None
    if len(shares) != lanes:
        raise ValueError(f"Policy.shares is {shares!r}, with {len(shares)} shares for {lanes} lanes; {_ALLOWED}")
    return None if min(shares) == max(shares) else tuple(share for share in shares if share > 0)


def check_policy(policy: Any) -> None:
    if not isinstance(policy, Policy):
        raise TypeError(f"policy is {policy!r}; a Policy is allowed")


DEFAULT_POLICY = Policy()
