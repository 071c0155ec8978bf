"""The next shares to try, from the trials so far. Pure functions, without torch.

A trial is a few training steps with the same shares. The first has equal shares. Each further one takes items from
lanes that end late, as long as steps get shorter. The last has equal shares again: if the machine has become faster
meanwhile, equal shares show it too::

    equal ── less for late lanes ── less again ── ... ── equal      fixed: the best trial, or equal shares
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from dpbench.parallel.shares.sizes import Shares, chunk_sizes

MAX_TRIALS = 4
"""Trials before equal shares are measured again."""
DAMPING = 0.7
"""Exponent of a lane's correction; 1 would take all of a lane's lateness for time that its items need."""
MIN_CHANGE = 0.03
"""Relative change of a share below which there is no further trial."""
MIN_GAIN = 0.05
"""Part of the step by which a trial must be shorter than the best earlier one."""


@dataclass(frozen=True, slots=True)
class ShareTrial:
    """What was measured: the typical time of a step, and the time at which each lane ended its forward, in seconds."""

    shares: Shares
    step_s: float
    lanes_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class NextShares:
    """Shares that sum to 1, and whether they are fixed for good."""

    shares: Shares
    is_fixed: bool


def equal_shares(lanes: int) -> Shares:
    return (1 / lanes,) * lanes


def next_shares(trials: Sequence[ShareTrial], lanes: int, batch: int) -> NextShares:
    """The shares of the next trial, or the fixed ones. `batch` is the number of items of a measured step."""
    equal = equal_shares(lanes)
    if not trials:
        return NextShares(equal, is_fixed=False)
    best = _best(trials)
    if len(trials) > 1 and (trials[-1].shares == equal or best.shares == equal):
        return NextShares(best.shares, is_fixed=True)
    if best is trials[-1] and len(trials) < MAX_TRIALS:
        proposed = balanced(best)
        tried = {chunk_sizes(batch, lanes, trial.shares) for trial in trials}
        if _differs(proposed, best.shares) and chunk_sizes(batch, lanes, proposed) not in tried:
            return NextShares(proposed, is_fixed=False)
    return NextShares(equal, is_fixed=best.shares == equal)


def balanced(trial: ShareTrial) -> Shares:
    """The trial's shares with less for lanes that end later than their geometric mean, and more for the others.

    No share becomes more than twice as large or less than half as large. They sum to 1.
    """
    if min(trial.lanes_s) <= 0:
        return trial.shares
    mean_s = prod(time_s ** (1 / len(trial.lanes_s)) for time_s in trial.lanes_s)
    changes = [min(max((mean_s / time_s) ** DAMPING, 0.5), 2.0) for time_s in trial.lanes_s]
    raw = [share * change for share, change in zip(trial.shares, changes, strict=True)]
    return tuple(share / sum(raw) for share in raw)


def _best(trials: Sequence[ShareTrial]) -> ShareTrial:
    """The trial that the others must beat: a later one replaces it if its step is shorter by `MIN_GAIN`.

    A trial with equal shares needs no gain: it replaces others unless they are shorter by `MIN_GAIN`.
    """
    best = trials[0]
    for trial in trials[1:]:
        if trial.shares == trials[0].shares:
            best = trial if best.step_s > (1 - MIN_GAIN) * trial.step_s else best
        elif trial.step_s < (1 - MIN_GAIN) * best.step_s:
            best = trial
    return best


def _differs(proposed: Shares, shares: Shares) -> bool:
    return any(abs(new / old - 1) >= MIN_CHANGE for new, old in zip(proposed, shares, strict=True))
