"""What one wrapper keeps for its replicas."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from dpbench.parallel.accumulate import Accumulation
from dpbench.parallel.compile_report import CompileReport
from dpbench.parallel.compiled import Callback
from dpbench.parallel.devices import DeviceLike, resolve_device
from dpbench.parallel.graphs import GraphReport
from dpbench.parallel.lanes import Lane, SideStreams, wait_stream
from dpbench.parallel.links import find_links
from dpbench.parallel.module_tree import ChangeWatch, ModuleTree
from dpbench.parallel.policy import DEFAULT_POLICY, Policy, check_policy
from dpbench.parallel.replica_sets import ReplicaSets
from dpbench.parallel.transfer import check_route

SMALL_BYTES = 256 * 1024
"""At 12 GB/s, PCIe 3, a copy takes 22 us; two events, two waits and two switches of streams take 20 to 60
(`parts.toml`).
"""


class _Unsettled(threading.local):
    """What the thread's last forward sent, and what compiles its replicas."""

    lanes: Sequence[Lane] = ()
    sent: Any = None
    callback: Callback = None
    """Dynamo's, under ``torch.compile(wrapper)``."""
    compiled_tree: ModuleTree | None = None
    """Of the last replicas, if a part of them is compiled."""


class ReplicaPool:
    def __init__(self, devices: Sequence[torch.device], policy: Policy, accumulation: Accumulation) -> None:
        self.devices = list(devices)
        check_route(policy, self.devices)
        links = find_links(devices, policy.route, policy.host_staged)
        small_bytes = SMALL_BYTES if policy.graphs else 0
        self.streams = SideStreams(
            devices, policy.host_staged, policy.route, links, small_bytes, has_whole_buckets=policy.whole_buckets
        )
        self.sets = ReplicaSets(self.devices[0], policy)
        self._policy = policy
        self._accumulation = accumulation
        self.unsettled = _Unsettled()
        self._watch = ChangeWatch() if policy.skip_unchanged else None
        self.graph_report = GraphReport()
        self.compile_report = CompileReport(self.devices)

    def replicas(self, base: nn.Module, count: int) -> list[nn.Module]:
        chosen, claim = self.sets.claim(base, count)
        lanes, reduce_lanes = self._lanes(count)
        accumulation = self._accumulation
        part = accumulation.outside if accumulation.is_new else accumulation.begin_forward(self.streams.has_links)
        self.unsettled.lanes = lanes
        try:
            watch, callback = self._watch or part.watch, self.unsettled.callback
            replicas = chosen.refresh(lanes, reduce_lanes, part, watch, callback)
            self.unsettled.compiled_tree = chosen.tree if chosen.is_compiled else None
            self.unsettled.sent = chosen.given, chosen.tree.counts, chosen.check_sizes
            return replicas
        finally:
            del claim

    def run_graphs(self, base: nn.Module, calls: Sequence[tuple[Any, Any]]) -> list[Any] | None:
        """None if this forward must run eagerly."""
        chosen, claim = self.sets.claim(base, len(calls))
        reason = None
        if not self._accumulation.is_new:
            reason = "accumulate() was used"
        elif not self.sets.is_first(chosen):
            reason = "an earlier forward is in use"
        if reason is not None:
            self.graph_report.note_eager(reason)
            return None
        lanes, reduce_lanes = self._lanes(len(calls))
        self.unsettled.lanes = lanes
        try:
            outputs = chosen.run_graphs(calls, lanes, reduce_lanes, self._accumulation.outside, self.graph_report)
        finally:
            del claim
        if outputs is not None:
            self.unsettled.lanes = []  # lane 0 has waited for all buckets that leave its device
        return outputs

    def _lanes(self, count: int) -> tuple[list[Lane], list[Lane]]:
        """Those of the broadcast, and those of the reduction."""
        # Lanes on one device run one after the other anyway, so side streams would only add events.
        has_links, policy = self.streams.has_links, self._policy
        return (
            self.streams.lanes(count, policy.overlap_broadcast and has_links),
            self.streams.lanes(count, policy.overlap_reduce and has_links),
        )

    def settle(self) -> None:
        """Make the base's compute stream wait until the side streams have read the weights.

        Raise RuntimeError if the forward has resized a parameter over others.
        """
        lanes, self.unsettled.lanes = self.unsettled.lanes, ()
        for lane in lanes:
            wait_stream(lanes[0].compute, lane.near)
        sent, self.unsettled.sent = self.unsettled.sent, None
        if sent is not None:
            tensors, counts, check_sizes = sent
            if tensors and list(map(Tensor.numel, tensors)) != counts:  # without a Python call in most forwards
                check_sizes(tensors)

    def recover(self) -> None:
        """After an interrupt a set may be half filled, or its memory in use by streams that it has not noted."""
        self.streams.restore()
        self.sets.drop()

    def mark_dirty(self) -> None:
        if self._watch is not None:
            self._watch.mark_dirty()
        self._accumulation.mark_dirty()


def replicate(
    network: nn.Module, devices: Sequence[DeviceLike], detach: bool = False, policy: Policy = DEFAULT_POLICY
) -> list[nn.Module]:
    """New replicas of `network`, one per device; the first shares its memory.

    `network` must be on ``devices[0]``. The other replicas are a snapshot: later changes to `network` do not reach
    them.
    """
    check_policy(policy)
    if not devices:
        return []
    resolved = [resolve_device(device) for device in devices]
    once = replace(policy, cache_replicas=False, overlap_broadcast=False, overlap_reduce=False, skip_unchanged=False)
    with torch.set_grad_enabled(torch.is_grad_enabled() and not detach):
        return ReplicaPool(resolved, once, Accumulation()).replicas(network, len(resolved))
