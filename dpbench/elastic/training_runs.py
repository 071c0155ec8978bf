"""The two training runs of the command: undisturbed, and elastic with the planned faults.

parent ══> child/agent (torchrun) ══> child/trainer, one for each rank                   undisturbed, elastic
       ══> child/fleet: agents ══> child/trainer, one for each agent      elastic, if ranks leave or join
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from dpbench.elastic.elastic_record import ElasticEvent, ElasticRecord, ElasticSettings, RunScheme
from dpbench.elastic.outage import why_other_end
from dpbench.elastic.run_files import ENVIRONMENT_FILE, ElasticJob, read_events
from dpbench.engine.interpret import ending, last_lines
from dpbench.engine.launch import Exit, launch
from dpbench.engine.start import child_command
from dpbench.records.record import Environment, Outcome
from dpbench.text.quantities import time_left

_PREFIX = "dpbench-elastic-"


def run_elastic(
    settings: ElasticSettings,
    run: str,
    timeout_s: float,
    checkpoints: Path | None,
    *,
    keep: Callable[[ElasticRecord], None],
    say: Callable[[str], object],
) -> tuple[ElasticRecord, ...]:
    """Run the undisturbed training, and the elastic one if faults are planned; `timeout_s` is for each.

    `keep` gets each record as soon as its run has ended, `say` a line a stage. The checkpoints are written in a new
    folder inside `checkpoints`, and removed.
    """
    with (
        TemporaryDirectory(prefix=_PREFIX) as scratch,
        TemporaryDirectory(prefix=_PREFIX, dir=checkpoints or scratch) as saved,
    ):
        records: list[ElasticRecord] = []
        schemes = list(RunScheme) if settings.plan else [RunScheme.UNDISTURBED]
        for place, scheme in enumerate(schemes):
            say(f"{scheme} run begins; at most {time_left(timeout_s * (len(schemes) - place))} left")
            folders = {"checkpoints": Path(saved).absolute() / scheme, "events": Path(scratch) / f"events-{scheme}"}
            for folder in folders.values():
                folder.mkdir()
            job = ElasticJob(scheme=scheme, settings=settings, **folders)
            record = train_once(job, run, timeout_s, records[0] if records else None, Path(scratch))
            keep(record)
            say(f"{scheme} run: {record.outcome} after {time_left(record.duration_s)}")
            records.append(record)
        return tuple(records)


def train_once(
    job: ElasticJob, run: str, timeout_s: float, undisturbed: ElasticRecord | None, scratch: Path
) -> ElasticRecord:
    """Train in new processes; the `undisturbed` run judges an elastic one.

    If SIGKILL ends this process, the folder `scratch` is removed.
    """
    child = child_command(f"dpbench.elastic.child.{'fleet' if job.has_fleet else 'agent'}")
    end = launch(child, job.model_dump_json(), timeout_s, scratch=scratch)
    events = read_events(job.events)
    outcome, reason = elastic_outcome(end, job, events, undisturbed)
    path = job.events / ENVIRONMENT_FILE
    own_environment = Environment.model_validate_json(path.read_bytes()) if path.exists() else None
    return ElasticRecord(
        run=run,
        scheme=job.scheme,
        settings=job.settings,
        started_at=end.started_at,
        duration_s=end.duration_s,
        outcome=outcome,
        reason=reason,
        environment=undisturbed.environment if undisturbed else own_environment,
        events=events,
    )


def elastic_outcome(
    end: Exit, job: ElasticJob, events: Sequence[ElasticEvent], undisturbed: ElasticRecord | None
) -> tuple[Outcome, str | None]:
    """The reason is None if the outcome is ok."""
    done = next((event for event in events if event.loss is not None and event.rank == 0), None)
    if end.timed_out_after_s is not None:
        return Outcome.TIME_OUT, ending(end)
    if end.returncode != 0 or done is None:
        return Outcome.CRASHED, "\n".join([ending(end), *last_lines(end.tail)])
    expected = undisturbed.done if undisturbed and job.scheme is RunScheme.ELASTIC else None
    reason = None if expected is None else why_other_end(done, expected, job.settings)
    return (Outcome.OK, None) if reason is None else (Outcome.WRONG_RESULT, reason)
