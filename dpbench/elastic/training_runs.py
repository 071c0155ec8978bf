"""The two training runs of the command: undisturbed, and elastic with the planned faults.

parent ══> child/agent (torchrun) ══> child/trainer, one for each rank                   undisturbed, elastic
       ══> child/fleet: agents ══> child/trainer, one for each agent      elastic, if ranks leave or join
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread

from dpbench.elastic.elastic_record import ElasticEvent, ElasticRecord, ElasticSettings, RunScheme
from dpbench.elastic.outage import why_other_end
from dpbench.elastic.request import claim_folder
from dpbench.elastic.run_files import ENVIRONMENT_FILE, ElasticJob, fault_file, read_events
from dpbench.engine.interpret import ending, last_lines
from dpbench.engine.launch import Exit, launch
from dpbench.engine.start import child_command
from dpbench.records.record import Environment, Outcome
from dpbench.text.quantities import time_left


def run_elastic(
    settings: ElasticSettings,
    run: str,
    timeout_s: float,
    checkpoints: Path | None,
    *,
    keep: Callable[[ElasticRecord], None],
    say: Callable[[str], object],
) -> tuple[ElasticRecord, ...]:
    """`keep` gets each record as soon as its run has ended, `say` a line a stage.

    `timeout_s` is for a run; `checkpoints` is a claimed folder, or None for a temporary one. Without faults there is
    one run.
    """
    with TemporaryDirectory(prefix="dpbench-elastic-") as own:
        if checkpoints is None:
            checkpoints = Path(own) / "checkpoints"
            claim_folder(checkpoints, settings)
        records: list[ElasticRecord] = []
        schemes = list(RunScheme) if settings.plan else [RunScheme.UNDISTURBED]
        for place, scheme in enumerate(schemes):
            say(f"{scheme} run begins; at most {time_left(timeout_s * (len(schemes) - place))} left")
            events = Path(own) / f"events-{scheme}"
            events.mkdir()
            job = elastic_job(settings, scheme, checkpoints / scheme, events)
            with _named_faults(job, say):
                record = train_once(job, run, timeout_s, records[0] if records else None, Path(own))
            keep(record)
            say(f"{scheme} run: {record.outcome} after {time_left(record.duration_s)}")
            records.append(record)
        return tuple(records)


@contextmanager
def _named_faults(job: ElasticJob, say: Callable[[str], object]) -> Iterator[None]:
    has_ended, left = Event(), list(job.faults)

    def watch() -> None:
        while not has_ended.wait(0.5):
            for fault in [each for each in left if fault_file(job.events, each).exists()]:
                left.remove(fault)
                say(f"{job.scheme} run: {fault}")

    thread = Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()


def train_once(
    job: ElasticJob, run: str, timeout_s: float, undisturbed: ElasticRecord | None, scratch: Path
) -> ElasticRecord:
    """Train in new processes; the `undisturbed` run judges an elastic one.

    If SIGKILL ends this process, the folder `scratch` is removed.
    """
    child = child_command("dpbench.elastic.child.agent" if job.least_nodes is None else "dpbench.elastic.child.fleet")
    return _recorded(job, run, launch(child, job.model_dump_json(), timeout_s, scratch=scratch), undisturbed)


def elastic_job(settings: ElasticSettings, scheme: RunScheme, checkpoints: Path, events: Path) -> ElasticJob:
    """An undisturbed run's job has no faults."""
    has_agents = scheme is RunScheme.ELASTIC and settings.is_world_changed
    return ElasticJob(
        scheme=scheme,
        settings=settings,
        faults=settings.plan if scheme is RunScheme.ELASTIC else (),
        checkpoints=checkpoints.absolute(),
        events=events,
        nodes=max(settings.worlds) if has_agents else 1,
        least_nodes=min(settings.worlds) if has_agents else None,
    )


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
    """How a run ended, and why if it is not ok.

    An elastic run's other end is a wrong result; see `why_other_end`.
    """
    done = next((event for event in events if event.loss is not None and event.rank == 0), None)
    if end.timed_out_after_s is not None:
        return Outcome.TIME_OUT, ending(end)
    if end.returncode != 0 or done is None:
        return Outcome.CRASHED, "\n".join([ending(end), *last_lines(end.tail)])
    expected = undisturbed.done if undisturbed and job.scheme is RunScheme.ELASTIC else None
    reason = None if expected is None else why_other_end(done, expected, job.settings)
    return (Outcome.OK, None) if reason is None else (Outcome.WRONG_RESULT, reason)


def _environment(job: ElasticJob) -> Environment | None:
    path = job.events / ENVIRONMENT_FILE
    return Environment.model_validate_json(path.read_bytes()) if path.exists() else None
