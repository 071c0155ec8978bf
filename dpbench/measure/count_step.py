"""The exact counters of one step, the third: the first two fill caches. Equal in every process.

sim:i   the recording of the simulated devices             simulated_counts.py, dependencies.py
cpu     Python calls, of all lanes in one process           python_calls.py
        operators and collectives, of one rank in each      rank_counts.py
"""

import gc
from collections.abc import Callable

import torch
from torch import distributed as dist

from dpbench.measure.dependencies import dependencies
from dpbench.measure.python_calls import PythonCalls
from dpbench.measure.rank_counts import RankCounts, sum_over_ranks
from dpbench.measure.session import Session, open_session
from dpbench.measure.simulated_counts import count_phase, counts_by_phase
from dpbench.measure.team import Team
from dpbench.results.counts import Counts, Phase, PhaseCounts
from dpbench.simulator import mark, recording
from dpbench.simulator.event_log import Recording
from dpbench.sweep.case import Case
from dpbench.sweep.variants import VariantId, VariantName

_STEPS_BEFORE = 2


def count(case: Case, connect: Callable[[torch.device], Team]) -> tuple[Counts, Recording | None]:
    """The case's counters, and for simulated devices, which must have been started, what they were asked to do.

    Each rank of a case with one process per device calls it. `tuned` dispatches in sequence: which way would be faster
    is no matter here. Raises NotImplementedError where the simulator cannot do an operator.
    """
    torch.set_num_threads(1)
    team = connect(torch.device(case.devices[0]))
    session = open_session(case.of(_counted(case.variant)), team.rank, team.size)
    # When the collector runs depends on everything that was ever made in this process.
    gc.disable()
    for _ in range(_STEPS_BEFORE):
        session.step()
        gc.collect()
    if case.variant.name is VariantName.DDP:
        return _count_ranks(session, team), None
    if session.devices[0].type == "cpu":
        return _count_calls(session), None
    return _count_simulated(session)


def _counted(variant: VariantId) -> VariantId:
    """Fix the dispatch of a tuned variant: which way would be faster here does not matter."""
    is_open = "dispatch" in variant.name.parameters and "dispatch" not in variant.values
    return variant.with_parameters(dispatch="sequence") if is_open else variant


def _count_ranks(session: Session, team: Team) -> Counts:
    team.line_up()
    with RankCounts() as counter:
        session.step(counter.enter)
    ranks: list[dict[Phase, PhaseCounts]] = [{} for _ in range(team.size)]
    dist.all_gather_object(ranks, counter.by_phase())
    return sum_over_ranks(ranks)


def _count_calls(session: Session) -> Counts:
    with PythonCalls() as calls:
        session.step(calls.enter)
    return Counts(phases={phase: PhaseCounts(python_calls=n) for phase, n in calls.by_phase().items()})


def _count_simulated(session: Session) -> tuple[Counts, Recording]:
    sim = torch.get_device_module("sim")
    devices = sorted({device.index for device in session.devices})
    peaks: list[dict[str, int]] = []

    def read_peaks() -> None:
        """Of what ran since the last reading."""
        peaks.append({f"sim:{device}": sim.max_memory_allocated(device) for device in devices})
        for device in devices:
            sim.reset_peak_memory_stats(device)

    def enter(phase: Phase) -> None:
        read_peaks()
        mark(phase)

    for device in devices:
        sim.synchronize(device)
    with recording() as recorded:
        loss = session.step(enter)
        read_peaks()
        del loss
    phases = {
        phase: count_phase(events, peak)
        for (phase, events), peak in zip(counts_by_phase(recorded).items(), peaks[1:], strict=True)
    }
    trains = Phase.BACKWARD in phases and len(devices) > 1
    return Counts(
        phases=phases, dependencies=dependencies(recorded, session.devices[0].index) if trains else None
    ), recorded
