"""How each variant is projected: which recording it needs, and what its events become. Pure.

==========  =============================  ======================================================
variant     recording                      events
==========  =============================  ======================================================
single      one device, its share          as recorded
torch_dp    all lanes                      copies become NCCL's collectives; new replicas each step
naive       all lanes                      as recorded; new replicas each step
tuned...    all lanes                      as recorded; interleaved lanes in one thread, in turns
  graphs    all lanes, eager, in sequence  each lane's forward and backward become a launch of a graph
ddp         one device, its share          with buckets and all-reduces
==========  =============================  ======================================================
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from dpbench.cases.variants import VariantId, VariantName
from dpbench.errors import WrongInputError
from dpbench.projection.collectives import with_collectives
from dpbench.projection.ddp import ddp_events
from dpbench.projection.described.machine import Machine
from dpbench.projection.graphed import graphed_events
from dpbench.projection.replay.build import Facts
from dpbench.projection.replay.events import MAIN, AnyEvent, BatonPass
from dpbench.records.counts import Phase
from dpbench.records.recording import ON_THREADS, Mark, Recording

Change = Callable[[Recording], tuple[Recording, Sequence[AnyEvent]]]


class ProjectionError(WrongInputError):
    """Something cannot be projected. The text is one line: the field, its value and what is allowed."""


@dataclass(frozen=True)
class Rule:
    """`change` returns the events to replay. `on_one_device` means that the recording is of one device's share."""

    change: Change
    on_one_device: bool = False
    on_several_machines: bool = False
    is_replicated: bool = False


def _as_recorded(recording: Recording) -> tuple[Recording, Sequence[AnyEvent]]:
    return recording, recording.events


def _stock(recording: Recording) -> tuple[Recording, Sequence[AnyEvent]]:
    return recording, with_collectives(recording)


def _in_turns(recording: Recording) -> tuple[Recording, Sequence[AnyEvent]]:
    """Return the events with all interleaved lanes in the main thread, and a pass of the baton where they alternate.

    The lanes' threads are in the recorded order, because a lane runs only while it has the baton.
    """
    events: list[AnyEvent] = []
    phase, holder = "", MAIN
    for event in recording.events:
        if isinstance(event, Mark):
            phase, holder = event.name, MAIN
        elif isinstance(event, ON_THREADS) and phase == Phase.FORWARD:
            if event.thread != holder:
                events.append(BatonPass(event.id))
                holder = event.thread
            event = replace(event, thread=MAIN)  # noqa: PLW2901
        events.append(event)
    return recording, events


_RULES: Mapping[str, Rule] = {
    VariantName.SINGLE: Rule(_as_recorded, on_one_device=True, on_several_machines=True),
    VariantName.TORCH_DP: Rule(_stock, is_replicated=True),
    VariantName.NAIVE: Rule(_as_recorded, is_replicated=True),
    VariantName.DDP: Rule(ddp_events, on_one_device=True, on_several_machines=True),
}


def rule_of(variant: VariantId) -> Rule:
    """Return the rule of a variant. Raise ProjectionError if it has none."""
    is_cached = variant.values.get("cache_replicas", True)
    has_graphs = bool(variant.values.get("graphs"))
    is_unruled = variant.takes_nccl_route or variant.former is not None or "accumulate" in variant.values
    is_unruled |= has_graphs and not is_cached  # replicas that are not kept run eagerly
    if variant.name is VariantName.TUNED and not is_unruled:
        is_interleaved = variant.values.get("dispatch") == "interleaved"
        if has_graphs:
            return Rule(graphed_events)
        return Rule(_in_turns if is_interleaved else _as_recorded, is_replicated=not is_cached)
    rule = _RULES.get(variant.name)
    if rule is None or (variant.name is VariantName.DDP and variant.values):
        allowed = ", ".join([*_RULES, "tuned but for route nccl, accumulate, and graphs with new replicas"])
        raise ProjectionError(f"variants: {str(variant)!r} has no rule for a projection; allowed: {allowed}")
    return rule


def why_not(variant: VariantId, machine: Machine) -> str | None:
    """Return why a variant cannot run on a machine, None if it can."""
    several = machine.ring is not None and machine.ring.machines > 1
    if several and not rule_of(variant).on_several_machines:
        return "one process cannot use the devices of several machines"
    return None


def check_batch(batch: int, devices: int) -> None:
    """Raise ProjectionError unless each device gets as many items as the others, and at least one."""
    if batch < devices or batch % devices:
        raise ProjectionError(f"batch: {batch} items on {devices} devices; allowed: a multiple of {devices}")


def facts_of(recording: Recording, rule: Rule) -> Facts:
    """Return the facts that a recording's events do not show."""
    model = recording.model
    replicas = recording.devices - 1 if rule.is_replicated else 0
    modules, parameters = (model.modules, model.parameters) if model is not None else (0, 0)
    return Facts(modules, parameters, replicas if model is not None else 0, streams=recording.streams)
