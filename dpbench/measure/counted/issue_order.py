"""How early the host issues the sums of gradients, in the order of its calls.

torch's engine runs the ready node with the highest sequence number first. A reduction whose node has a low number is
issued after the whole backward, although no data and no stream makes it wait::

    lane 0:   b b b b | b b b b           the lane that the host issues last
    issued:       R1      R2              R1 is issued at half; R2 is not
              ^   ^
              |   its copies between devices
              its gradients are ready: `operators_before` counts the b between the two
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from dpbench.results.recording import Copy, Operator

Work = Operator | Copy


@dataclass(frozen=True)
class Reductions:
    """The sums of gradients over the lanes in one backward.

    `copies` are between devices. `inputs` has for each part of a reduction the ids of the gradients that it reads.
    `group_of` has for each part a number of its reduction. `lanes` are the operators of the lanes' backward.
    """

    copies: Sequence[Copy]
    inputs: Mapping[int, Sequence[int]]
    group_of: Mapping[int, int]
    lanes: Sequence[Operator]


@dataclass(frozen=True)
class IssueOrder:
    """When the host issues the reductions: counters of `results.counts.Dependencies`."""

    at_half_bytes: int
    operators_before: int
    swaps: int


def issue_order(found: Reductions) -> IssueOrder:
    """Return when the host issues the copies of each reduction, by the order of the events. Pure."""
    halves = second_halves(found.lanes)
    half = max((min(late) for late in halves.values()), default=0)
    issued: dict[int, int] = {}
    for copy in found.copies:
        group = found.group_of[copy.id]
        issued[group] = min(issued.get(group, copy.id), copy.id)
    ready = dict.fromkeys(issued, 0)
    for part, inputs in found.inputs.items():
        group = found.group_of[part]
        if group in ready:
            ready[group] = max(ready[group], *inputs, 0)
    return IssueOrder(
        at_half_bytes=sum(copy.size_bytes for copy in found.copies if copy.id < half),
        operators_before=sum(ready[each] < lane.id < issued[each] for each in issued for lane in found.lanes),
        swaps=sum((ready[a] - ready[b]) * (issued[a] - issued[b]) < 0 for a, b in combinations(issued, 2)),
    )


def second_halves(operators: Sequence[Operator]) -> dict[int, list[int]]:
    """Return by device the ids of the operators that are not in the first half of its operators."""
    by_device: dict[int, list[int]] = {}
    for operator in operators:
        by_device.setdefault(operator.device, []).append(operator.id)
    return {device: lane[len(lane) // 2 :] for device, lane in by_device.items()}
