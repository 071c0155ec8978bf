"""The wrapper's techniques: each has a switch, so that its effect can be measured."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

import torch

from dpbench.parallel.shares.sizes import Shares, checked_shares

MIB = 1024 * 1024


class Dispatch(StrEnum):
    """How replicas are called: on threads, in sequence, interleaved, or in the way that measures fastest."""

    THREADS = "threads"
    SEQUENCE = "sequence"
    INTERLEAVED = "interleaved"
    AUTO = "auto"


class Route(StrEnum):
    """Which lane sends weights to which, and gradients back (`routes/plan.py`). AUTO chooses from the links."""

    AUTO = "auto"
    STAR = "star"
    CHAIN = "chain"
    TREE = "tree"
    HOST = "host"
    NCCL = "nccl"


@dataclass(frozen=True)
class Policy:
    """The user's choices, checked when made.

    Raises ValueError, with the field's name, for a wrong value.

    All combinations give the same numbers, except batch norm with other `shares`, and random numbers that lanes
    draw from a generator they share. In sequence lane 0 draws all of its numbers first, then lane 1. Interleaved,
    lane 0 draws those of its first leaf module, then lane 1, and so on to the last lane; then lane 0 those of its
    next two, then four, eight, and sixteen from then on. On threads the order is undefined. Under "auto" torch's
    default generators are checked before and after each call, and replicas that draw run in sequence. The check
    does not see other generators: Python's, NumPy's, a module's own, and states that ``torch.random.fork_rng`` puts
    back.

    `dispatch` "interleaved" has all lanes under way at once, but one runs at a time, so that all devices have work
    early. The order of the operators is the same in every run (`dispatch/interleaved.py`). Replicas that wait for each
    other run on threads from then on, with a warning.

    `bucket_bytes` limits the tensors that are sent together; the stock wrapper's limit is 10 MiB too.
    `first_bucket_bytes` is smaller so that the first layers can start early. It is used only if that costs no message.
    `skip_unchanged` does not send parameters again that provably have not changed. Writes through ``.data``, NumPy,
    the storage or another process are not seen. Nor are kernels that raise no version counter, such as
    ``torch.distributed.broadcast``, or a fused kernel outside a ``torch.optim.Optimizer``. After such a write call
    `DataParallel.mark_dirty`, or do not opt in.
    `host_staged` sends copies between devices through the host, even if the direct link passed its test.
    `route` decides which lane sends weights to which lane. Gradients go back the same way. Every set of devices can
    take every route but "nccl", which needs CUDA devices with a lane each. Lanes without links, such as CPU lanes, have
    none. Three lanes or more take under "auto" what measures faster, so two runs may add gradients in another order.
    `shares` cuts the batch unevenly: a tuple of numbers, one for each lane, such as ``(1, 2, 2)``. The first is above
    0, and zeros are allowed at the end, where they mean fewer lanes (`shares/sizes.py`). None gives equal chunks, as
    stock. "auto" measures the first training steps, then keeps one choice (`shares/measured.py`). With batch norm,
    the chunks' sizes change the numbers. So under "auto" two runs may differ.

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
    host_staged: bool = False
    dispatch: Dispatch = Dispatch.AUTO
    route: Route = Route.AUTO
    shares: Shares | Literal["auto"] | None = None

    def ways(self, devices: Sequence[torch.device]) -> tuple[Dispatch, ...]:
        """The ways to call replicas on these devices that the policy allows; "auto" measures them in this order.

        It leaves the first one only for a gain above 5 % (`dispatch/autotune.py`). On the CPU a call ends when
        its work is done: interleaved, no device has work earlier, so it is not tried.
        """
        if self.dispatch is not Dispatch.AUTO:
            return (self.dispatch,)
        is_asynchronous = any(device.type != "cpu" for device in devices)
        return Dispatch.SEQUENCE, Dispatch.THREADS, *([Dispatch.INTERLEAVED] if is_asynchronous else [])

    def __post_init__(self) -> None:
        for name in ("bucket_bytes", "first_bucket_bytes"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"Policy.{name} is {value!r}; a whole number of bytes from 1 up is allowed")
        for name in _SWITCHES:
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
    """Raise TypeError if `policy` is no `Policy`."""
    if not isinstance(policy, Policy):
        raise TypeError(f"policy is {policy!r}; a Policy is allowed")
