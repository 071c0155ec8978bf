"""The exact counters of one step: the third, because the first two fill caches."""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch import distributed as dist

from dpbench.cases.case import Case
from dpbench.cases.variants import VariantId
from dpbench.measure.counted.dependencies import dependencies
from dpbench.measure.counted.details import Sites
from dpbench.measure.counted.host_work import HostWork, ThreadWork
from dpbench.measure.counted.more_steps import count_more_steps, kept_per_step
from dpbench.measure.pinned import pinned
from dpbench.measure.python_calls import PythonCalls, PythonLines
from dpbench.measure.ranks.rank_counts import RankCounts, sum_over_ranks, waiting_all_reduces
from dpbench.measure.ranks.team import Team
from dpbench.measure.session import Session, open_session
from dpbench.measure.simulated_counts import counts_by_phase, events_by_phase, turns_of
from dpbench.records.count_record import Counts, Detail, Phase, PhaseCounts
from dpbench.records.recording import ModelFacts, Recording
from dpbench.simulator import mark, recording
from dpbench.simulator.simulation import at_lines_of, log_gradient
from dpbench.simulator.unsupported import together

_STEPS_BEFORE = 2
_MOST_TRIALS = 50


@dataclass(frozen=True)
class Extras:
    """See `CountJob` in engine/messages.py."""

    gradients: bool = False
    thorough: bool = False
    more_steps: int = 0
    way: str = ""
    sites: Sites | None = None


class _ForwardEndedError(Exception): ...


class Counted(NamedTuple):
    counts: Counts
    recording: Recording | None = None
    details: tuple[Detail, ...] = ()


def count(case: Case, connect: Callable[[Sequence[str]], Team], extras: Extras = Extras()) -> Counted:
    """Simulated devices must have been started, and each rank calls this.

    Raises NotImplementedError if the simulator lacks an operator, and WorkloadError.
    """
    torch.set_num_threads(1)
    is_cpu = case.devices[0] == "cpu"
    threads = ThreadWork() if extras.thorough and is_cpu else None  # before the wrapper's threads
    team = connect(case.devices)
    session = open_session(case.of(_counted(case.variant)), team.rank, team.size)
    # Garbage collections depend on all objects made in this process before, so they would change the counts.
    gc.disable()
    with pinned(extras.way) if extras.way else nullcontext():
        for number in range(_MOST_TRIALS):
            if number >= _STEPS_BEFORE and not (extras.way and session.trials_left()):
                break
            with together() if number == 0 else nullcontext():
                session.step()
            gc.collect()
    if session.variant.per_rank:
        return Counted(_count_ranks(session, team))
    if session.placement.devices[0].type == "cpu":
        counted = _count_calls(session, extras, threads)
    else:
        counted = count_simulated(session, extras)
    if extras.thorough:
        counted = counted._replace(counts=_with_host_work(session, counted, extras.sites))
    return counted._replace(details=extras.sites.details()) if extras.sites else counted


def _counted(variant: VariantId) -> VariantId:
    """With sequential dispatch, unless the case names one: what `tuned` finds faster must not matter."""
    is_open = "dispatch" in variant.name.parameters and "dispatch" not in variant.values
    return variant.with_parameters(dispatch="sequence") if is_open else variant


def _count_ranks(session: Session, team: Team) -> Counts:
    team.line_up()
    with waiting_all_reduces(), RankCounts() as counter:
        session.step(counter.enter)
    ranks: list[dict[Phase, PhaseCounts]] = [{} for _ in range(team.size)]
    dist.all_gather_object(ranks, counter.by_phase())
    return sum_over_ranks(ranks)


def _count_calls(session: Session, extras: Extras, threads: ThreadWork | None) -> Counted:
    sites, lines = extras.sites, dict[Phase, int]()
    with PythonCalls(sites.calls if sites else None) as calls:
        session.step(calls.enter)
    if extras.thorough:
        with PythonLines(sites.lines if sites else None) as executed:
            session.step(executed.enter)
        lines = executed.by_phase()
    if threads is not None:
        session.step(threads.enter)
        threads.stop()
    phases = {
        phase: PhaseCounts(
            python_calls=n, python_lines=lines.get(phase), **threads.of(phase) if threads is not None else {}
        )
        for phase, n in calls.by_phase().items()
    }
    more_steps = count_more_steps(session.step, extras.more_steps, sites) if extras.more_steps else None
    kept = kept_per_step(session.step, extras.more_steps) if extras.more_steps else None
    return Counted(Counts(phases=phases, kept=kept, more_steps=more_steps))


def _with_host_work(session: Session, counted: Counted, sites: Sites | None) -> Counts:
    """Add a further step's host work. Simulated devices' own threads run the backward, so there the forward's alone."""
    counts, recorded = counted.counts, counted.recording
    is_cpu, work = session.placement.devices[0].type == "cpu", HostWork(sites.host_operators if sites else None)

    def enter(phase: Phase) -> None:
        if phase is not Phase.FORWARD and not is_cpu and session.variant.micro_batches == 1:
            raise _ForwardEndedError
        work.enter(phase)

    with suppress(_ForwardEndedError), work:
        session.step(enter)
    host = {
        phase: {"host_operators": work.operators[phase], "host_bytes": work.written_bytes[phase]}
        for phase in counts.phases
        if is_cpu or phase is Phase.FORWARD
    }
    if recorded is not None:
        host[Phase.FORWARD]["turns"] = turns_of(events_by_phase(recorded)[Phase.FORWARD])
    phases = {phase: of_phase.model_copy(update=host.get(phase, {})) for phase, of_phase in counts.phases.items()}
    return counts.model_copy(update={"phases": phases})


def count_simulated(session: Session, extras: Extras) -> Counted:
    sim = torch.get_device_module("sim")
    devices = sorted({device.index for device in session.placement.devices})
    peaks: list[dict[str, int]] = []

    def read_peaks() -> None:
        peaks.append({f"sim:{device}": sim.max_memory_allocated(device) for device in devices})
        for device in devices:
            sim.reset_peak_memory_stats(device)

    def enter(phase: Phase) -> None:
        read_peaks()
        mark(phase)

    for device in devices:
        sim.synchronize(device)
    logged = gradients_logged(session.base) if extras.gradients else nullcontext()
    placed = at_lines_of(extras.sites.innermost) if extras.sites else nullcontext()
    with logged, placed, recording() as recorded:
        loss = session.step(enter)
        read_peaks()
        del loss
    recorded.model = facts_of(session.base)
    phases = counts_by_phase(recorded, peaks[1:])  # the first peaks are from before the step
    has_reduction = Phase.BACKWARD in phases and len(devices) > 1
    overlap = dependencies(recorded, session.placement.devices[0].index) if has_reduction else None
    if extras.sites:
        extras.sites.add_recording(recorded)
    return Counted(Counts(phases=phases, dependencies=overlap), recorded)


def facts_of(base: nn.Module) -> ModelFacts:
    sizes = tuple(parameter.nbytes for parameter in base.parameters())
    buffers = [buffer.nbytes for buffer in base.buffers()]
    return ModelFacts(
        modules=sum(1 for _ in base.modules()),
        parameters=len(sizes),
        buffers=len(buffers),
        parameter_bytes=sum(sizes),
        buffer_bytes=sum(buffers),
        parameter_sizes=sizes,
    )


@contextmanager
def gradients_logged(base: nn.Module) -> Iterator[None]:
    """Log a `GradientReady` for each gradient of the base; of one in parts, the last event counts."""

    def log(position: int, parameter: Tensor) -> None:
        log_gradient(position, parameter.nbytes, parameter.device.index)

    hooks = [
        parameter.register_post_accumulate_grad_hook(partial(log, position))
        for position, parameter in enumerate(base.parameters())
        if parameter.requires_grad
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
