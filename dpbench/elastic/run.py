"""The three training runs of the command: undisturbed, elastic with the planned faults, and the wrapper's.

parent ══> child/agent (torchrun) ══> child/trainer, one for each rank        undisturbed, elastic
       ══> child/trainer                                                      wrapper
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
from dpbench.results.record import Environment, Outcome
from dpbench.run.interpret import ending, last_lines
from dpbench.run.launch import Exit, launch
from dpbench.run.start import child_command

_AGENT, _TRAINER = "dpbench.elastic.child.agent", "dpbench.elastic.child.trainer"


def run_elastic(
    settings: ElasticSettings,
    run: str,
    timeout_s: float,
    checkpoints: Path,
    keep: Callable[[ElasticRecord], None],
) -> tuple[ElasticRecord, ...]:
    """Train three times and return the records. `keep` gets each record as soon as its run has ended.

    `timeout_s` is for one run. `checkpoints` is a claimed folder. Without faults there is one run.
    """
    with TemporaryDirectory(prefix="dpbench-elastic-") as own:
        records: list[ElasticRecord] = []
        for scheme in RunScheme if settings.plan else (RunScheme.UNDISTURBED,):
            events = Path(own) / f"events-{scheme}"
            events.mkdir()
            job = elastic_job(settings, scheme, checkpoints / scheme, events)
            record = _recorded(job, run, _launched(job, timeout_s), records[0] if records else None)
            keep(record)
            records.append(record)
        return tuple(records)


@contextmanager
def claimed_folder(folder: Path | None, settings: ElasticSettings) -> Iterator[Path]:
    """Yield the folder of checkpoints, or a temporary one for None. Raise WrongInputError for one of another model."""
    if folder is not None:
        claim_folder(folder, settings)
        yield folder
        return
    with TemporaryDirectory(prefix="dpbench-checkpoints-") as own:
        claim_folder(Path(own), settings)
        yield Path(own)


def elastic_job(settings: ElasticSettings, scheme: RunScheme, checkpoints: Path, events: Path) -> ElasticJob:
    """Return the job of one run. The wrapper's only fault is a kill at the first fault's step."""
    faults = settings.plan
    if scheme is RunScheme.UNDISTURBED:
        faults = ()
    elif scheme is RunScheme.WRAPPER:
        faults = (settings.plan[0].model_copy(update={"kind": FaultKind.KILL, "rank": 0}),)
    return ElasticJob(
        scheme=scheme, settings=settings, faults=faults, checkpoints=checkpoints.absolute(), events=events
    )


def _launched(job: ElasticJob, timeout_s: float) -> Exit:
    text = job.model_dump_json()
    if job.scheme is not RunScheme.WRAPPER:
        return launch(child_command(_AGENT), text, timeout_s)
    path = job.events / "job-0.json"
    path.write_text(text)
    with _variable(JOB_VARIABLE, str(path)):
        return launch(child_command(_TRAINER), "", timeout_s)


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

    An elastic run that ends with other parameters or another loss than the undisturbed one has a wrong result.
    """
    done = next((event for event in events if event.loss is not None and event.rank == 0), None)
    if end.timed_out_after_s is not None:
        return Outcome.TIME_OUT, ending(end)
    if end.returncode != 0 or done is None:
        return Outcome.CRASHED, _why_crashed(end, job, events)
    expected = undisturbed.done if undisturbed and job.scheme is RunScheme.ELASTIC else None
    if expected is not None and (done.loss, done.digest) != (expected.loss, expected.digest):
        return Outcome.WRONG_RESULT, f"the loss is {done.loss!r}; that of the undisturbed run is {expected.loss!r}"
    return Outcome.OK, None


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
