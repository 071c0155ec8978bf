"""The three training runs of the command: undisturbed, elastic with the planned faults, and the wrapper's.

parent ══> child/agent (torchrun) ══> child/trainer, one for each rank                   undisturbed, elastic
       ══> child/fleet: agents ══> child/trainer, one for each agent      elastic, if ranks leave or join
       ══> child/trainer                                                                 wrapper
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from dpbench.elastic.elastic_record import ElasticEvent, ElasticRecord, ElasticSettings, FaultKind, RunScheme
from dpbench.elastic.events import read_events
from dpbench.elastic.folders import claim_folder
from dpbench.elastic.job import ENVIRONMENT_FILE, JOB_VARIABLE, ElasticJob
from dpbench.elastic.outage import steps_done, steps_kept
from dpbench.elastic.same_end import why_other_end
from dpbench.results.record import Environment, Outcome
from dpbench.run.interpret import ending, last_lines
from dpbench.run.launch import Exit, launch
from dpbench.run.start import child_command

_AGENT, _FLEET, _TRAINER = (f"dpbench.elastic.child.{name}" for name in ("agent", "fleet", "trainer"))


def run_elastic(
    settings: ElasticSettings,
    run: str,
    timeout_s: float,
    checkpoints: Path | None,
    keep: Callable[[ElasticRecord], None],
) -> tuple[ElasticRecord, ...]:
    """Train three times and return the records. `keep` gets each record as soon as its run has ended.

    `timeout_s` is for one run. `checkpoints` is a claimed folder, or None for a temporary one. Without faults there is
    one run.
    """
    with TemporaryDirectory(prefix="dpbench-elastic-") as own:
        if checkpoints is None:
            checkpoints = Path(own) / "checkpoints"
            claim_folder(checkpoints, settings)
        records: list[ElasticRecord] = []
        for scheme in schemes_of(settings):
            events = Path(own) / f"events-{scheme}"
            events.mkdir()
            job = elastic_job(settings, scheme, checkpoints / scheme, events)
            record = train_once(job, run, timeout_s, records[0] if records else None, Path(own))
            keep(record)
            records.append(record)
        return tuple(records)


def schemes_of(settings: ElasticSettings) -> tuple[RunScheme, ...]:
    """Return the runs to make: the elastic one needs a plan, the wrapper's a fault that is no join."""
    if not settings.plan:
        return (RunScheme.UNDISTURBED,)
    has_failure = any(fault.kind is not FaultKind.JOIN for fault in settings.plan)
    return tuple(scheme for scheme in RunScheme if scheme is not RunScheme.WRAPPER or has_failure)


def train_once(
    job: ElasticJob, run: str, timeout_s: float, undisturbed: ElasticRecord | None, scratch: Path
) -> ElasticRecord:
    """Train in new processes and return the record. An elastic run is judged by the `undisturbed` one.

    If SIGKILL ends this process, the folder `scratch` is removed.
    """
    return _recorded(job, run, _launched(job, timeout_s, scratch), undisturbed)


def elastic_job(settings: ElasticSettings, scheme: RunScheme, checkpoints: Path, events: Path) -> ElasticJob:
    """Return the job of one run. The wrapper's only fault is a kill at the step of the first one that is no join."""
    faults = settings.plan
    if scheme is RunScheme.UNDISTURBED:
        faults = ()
    elif scheme is RunScheme.WRAPPER:
        first = next(fault for fault in settings.plan if fault.kind is not FaultKind.JOIN)
        faults = (first.model_copy(update={"kind": FaultKind.KILL, "rank": 0}),)
    has_agents = scheme is RunScheme.ELASTIC and settings.is_world_changed
    return ElasticJob(
        scheme=scheme,
        settings=settings,
        faults=faults,
        checkpoints=checkpoints.absolute(),
        events=events,
        nodes=max(settings.worlds) if has_agents else 1,
        least_nodes=min(settings.worlds) if has_agents else None,
    )


def _launched(job: ElasticJob, timeout_s: float, scratch: Path) -> Exit:
    text = job.model_dump_json()
    if job.scheme is not RunScheme.WRAPPER:
        return launch(child_command(_AGENT if job.least_nodes is None else _FLEET), text, timeout_s, scratch=scratch)
    path = job.events / "job-0.json"
    path.write_text(text)
    with _variable(JOB_VARIABLE, str(path)):
        return launch(child_command(_TRAINER), "", timeout_s, scratch=scratch)


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


def _recorded(job: ElasticJob, run: str, end: Exit, undisturbed: ElasticRecord | None) -> ElasticRecord:
    events = read_events(job.events)
    outcome, reason = elastic_outcome(end, job, events, undisturbed)
    environment = undisturbed.environment if undisturbed else _environment(job)
    return ElasticRecord(
        run=run,
        scheme=job.scheme,
        settings=job.settings,
        started_at=end.started_at,
        duration_s=end.duration_s,
        outcome=outcome,
        reason=reason,
        environment=environment,
        events=events,
    )


def elastic_outcome(
    end: Exit, job: ElasticJob, events: Sequence[ElasticEvent], undisturbed: ElasticRecord | None
) -> tuple[Outcome, str | None]:
    """Return how a run ended, and why if it is not ok.

    An elastic run that does not end as the undisturbed one has a wrong result; see `why_other_end`.
    """
    done = next((event for event in events if event.loss is not None and event.rank == 0), None)
    if end.timed_out_after_s is not None:
        return Outcome.TIME_OUT, ending(end)
    if end.returncode != 0 or done is None:
        return Outcome.CRASHED, _why_crashed(end, job, events)
    expected = undisturbed.done if undisturbed and job.scheme is RunScheme.ELASTIC else None
    reason = None if expected is None else why_other_end(done, expected, job.settings)
    return (Outcome.OK, None) if reason is None else (Outcome.WRONG_RESULT, reason)


def _why_crashed(end: Exit, job: ElasticJob, events: Sequence[ElasticEvent]) -> str:
    if job.scheme is RunScheme.WRAPPER and any(event.detail for event in events):
        done, kept = steps_done(events), steps_kept(events)
        return (
            f"killed after {done} steps; nothing restarts a single process; all {job.settings.ranks} lanes ended, and "
            f"the newest checkpoint has {kept} steps"
        )
    return "\n".join([ending(end), *last_lines(end.tail)])


def _environment(job: ElasticJob) -> Environment | None:
    path = job.events / ENVIRONMENT_FILE
    return Environment.model_validate_json(path.read_bytes()) if path.exists() else None
