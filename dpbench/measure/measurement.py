import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeVar

import psutil
import torch

from dpbench.cases.case import Case
from dpbench.cases.host import link_mbit_per_s
from dpbench.cases.names import Mode
from dpbench.judge.least_samples import LEAST_S, least_seconds
from dpbench.measure.clock import make_clock
from dpbench.measure.compilation import NotCompiledError, has_graphs
from dpbench.measure.fairness import Distance, WrongResultError, error_against_oracle, error_of_trained, furthest
from dpbench.measure.gpu.telemetry import telemetry_of
from dpbench.measure.lane_threads import candidates, set_fastest
from dpbench.measure.phases import phases_of, steps_worth
from dpbench.measure.ranks.collectives import collectives_of
from dpbench.measure.ranks.team import Team
from dpbench.measure.sample import Samples, Window, sample
from dpbench.measure.session import Session, open_session
from dpbench.measure.stopping import StopRule, WarmUp
from dpbench.records.readings import SkippedSteps
from dpbench.records.record import Metrics
from dpbench.variants.registry import variant_of
from dpbench.workloads.resolve import resolve

T = TypeVar("T")

_WARMUP_SHARE = 1 / 3
"""Seconds of warm-up for each second of samples, at most; more until the scheme is settled."""
_ACCELERATOR_WARMUP_S = 0.5
"""The warm-up after the scheme is settled: a GPU's clocks rise while it works."""


class Stages:
    """Seconds of what a case's process does beside its samples, by stage, from its start."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._begun_s = psutil.Process().create_time()

    def end(self, stage: str, samples_s: float = 0.0) -> None:
        now_s = time.time()
        self.seconds[stage] = max(0.0, now_s - self._begun_s - samples_s)
        self._begun_s = now_s


@dataclass(frozen=True)
class Measurement:
    samples_s: tuple[float, ...]
    metrics: Metrics


def measure(case: Case, sampling_s: float, connect: Callable[[Sequence[str]], Team]) -> Measurement:
    """Warm the case up, sample it for about `sampling_s` seconds, compare it with the oracle.

    `connect` returns the team of the processes of its devices, each of which calls this. Raises NotSettledError,
    WrongResultError, and errors of the case itself.
    """
    stages = Stages()
    workload = resolve(case.workload, case.data)
    team = connect(case.devices)
    stages.end("start")
    counts = candidates(case, variant_of(case.variant))
    torch.set_num_threads(counts[0])
    session = open_session(case, team.rank, team.size, workload=workload)
    stages.end("model")
    devices = session.placement.devices
    clock = make_clock(devices)
    loss_first = _loss_of_a_step(session)
    threads_per_lane = set_fastest(counts, session.step, clock)
    window, least_s = Window(devices, telemetry_of(devices)), least_seconds(case.devices)
    samples = sample(
        session.step,
        clock,
        team,
        WarmUp(sampling_s * _WARMUP_SHARE, _trials_left(session, team), _settled_s(least_s)),
        StopRule(max_s=sampling_s, least_s=least_s),
        window=window,
        steps_per_sample=case.steps_per_sample,
    )
    stages.end("warm-up", sum(samples.times_s))
    _refuse_uncompiled(case, team)
    loss_last = _loss_of_a_step(session)
    steps = steps_worth(median(samples.times_s) / case.steps_per_sample, sampling_s)
    phases_s = phases_of(session, steps) | (collectives_of(session, steps) if team.size > 1 else {})
    stages.end("phases")
    skipped_steps = _skipped_steps(session)
    distance = error_of_trained(session)
    del session  # frees the model before the next session makes one
    distance = furthest(distance, error_against_oracle(open_session(case, team.rank, team.size, workload=workload)))
    refuse_wrong_result(case, distance)
    stages.end("fairness")
    return Measurement(
        samples.times_s,
        Metrics(
            threads_per_lane=threads_per_lane,
            warmup_steps=samples.warmup_steps + 1,
            stopped_by=samples.stopped_by,
            compile_s=samples.compile_s or None,
            stages_s=stages.seconds,
            phases_s=phases_s,
            **(_of_ranks(team, samples, phases_s) if team.size > 1 else {}),
            relative_error=distance.error,
            loss_first=loss_first,
            loss_last=loss_last,
            skipped_steps=skipped_steps,
            peak_rss_bytes=sum(team.gather(window.peak_rss_bytes)),
            peak_device_bytes=_of_all_ranks(window.peak_device_bytes, team),
            peak_reserved_bytes=_of_all_ranks(window.peak_reserved_bytes, team),
            telemetry=_of_all_ranks(window.telemetry, team),
        ),
    )


def _trials_left(session: Session, team: Team) -> Callable[[], int | None]:
    """All ranks must call the function, and get the same number."""
    if team.size == 1:
        return session.trials_left
    return lambda: max(team.gather(session.trials_left() or 0))


def _settled_s(least_s: float) -> float:
    return _ACCELERATOR_WARMUP_S if least_s > LEAST_S else 0.0


def _of_ranks(team: Team, samples: Samples, phases_s: dict[str, float | str]) -> dict[str, Any]:
    interface = os.environ.get("GLOO_SOCKET_IFNAME")
    return {
        "skew_s": samples.skew_s,
        "rank_lag_s": tuple(team.gather(samples.lag_s)),
        "phases_by_rank_s": tuple(team.gather(phases_s)),
        "rank_machines": tuple(team.gather(socket.gethostname())),
        "network_interface": interface,
        "rank_link_mbit_per_s": None if interface is None else tuple(team.gather(link_mbit_per_s(interface))),
    }


def _of_all_ranks(by_device: dict[str, T], team: Team) -> dict[str, T]:
    return {device: value for rank in team.gather(by_device) for device, value in rank.items()}


def _loss_of_a_step(session: Session) -> float | None:
    result = session.step()
    return float(result) if session.case.mode is Mode.TRAIN else None


def _skipped_steps(session: Session) -> SkippedSteps | None:
    """Raise WrongResultError if no step changed the weights."""
    counted = session.skipped_steps
    if counted and counted.skipped == counted.steps:
        raise WrongResultError(
            f"GradScaler skipped all {counted.steps} steps: the gradients overflow in {session.case.dtype}"
        )
    return counted


def _refuse_uncompiled(case: Case, team: Team) -> None:
    """Raise NotCompiledError."""
    if case.variant.compile_mode and not all(team.gather(has_graphs())):
        raise NotCompiledError("torch.compile compiled no graph: all that the scheme called ran eagerly")


def refuse_wrong_result(case: Case, distance: Distance) -> None:
    """Raise WrongResultError if the relative error is above the tolerance, or is no number."""
    if not distance.is_right:
        what = "gradients" if case.mode is Mode.TRAIN else "outputs"
        raise WrongResultError(
            f"{what} are {distance.error:.2g} away from the plain module run chunk by chunk "
            f"(relative; {distance.allowed:.3g} allowed for {case.variant} and {case.dtype})"
        )
