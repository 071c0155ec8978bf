"""Hand-made events of elastic runs. Times are in seconds."""

from dpbench.elastic.elastic_record import (
    CheckpointFormat,
    ElasticEvent,
    ElasticRecord,
    ElasticSettings,
    EventKind,
    RunScheme,
)
from dpbench.elastic.request import parse_plan
from dpbench.elastic.run_files import in_time
from dpbench.records.record import Outcome

SETTINGS = ElasticSettings(
    workload="mlp/tiny",
    ranks=2,
    steps=20,
    batch=8,
    dtype="float32",
    checkpoint_every=5,
    backend=CheckpointFormat.TORCH_SAVE,
    max_restarts=3,
    hang_timeout_s=30.0,
    seed=0,
)


def event(at_s: float, kind: EventKind, rank: int | None = 0, pid: int = 1, **fields) -> ElasticEvent:
    return ElasticEvent(at_ns=round(at_s * 1e9), kind=kind, pid=pid, rank=rank, **fields)


def steps(begin_s: float, first: int, end: int, every_s: float = 1.0) -> list[ElasticEvent]:
    """Rank 0 takes the steps first to end-1; the first one ends at begin_s."""
    return [event(begin_s + every_s * n, EventKind.STEP, step=step) for n, step in enumerate(range(first, end))]


def one_outage() -> tuple[ElasticEvent, ...]:
    """Seven steps, a kill of rank 1 at 10 s, a restart from 5 steps. Rank 0 stamps step 6 after the fault."""
    return in_time(
        [
            *steps(4, 0, 6),
            event(9.05, EventKind.CHECKPOINT_END, step=5),
            event(10, EventKind.FAULT, rank=1, step=7, detail="kill"),
            event(10.01, EventKind.STEP, step=6),
            event(11, EventKind.STOP_BEGIN, rank=None),
            event(11.5, EventKind.STOP_END, rank=None),
            event(14.25, EventKind.START_BEGIN, rank=None),
            event(18, EventKind.READY, rank=1),
            event(19, EventKind.READY),
            event(20, EventKind.RESTORE_END, rank=1, step=5),
            event(20.5, EventKind.RESTORE_END, step=5),
            *steps(21.5, 5, 20),
            event(36, EventKind.DONE, loss=1.5, digest="ab"),
        ]
    )


def two_rounds() -> tuple[ElasticEvent, ...]:
    """The same with agent 1, which stops until 13.5 s while agent 0 waits; a second round stops workers again."""
    late = [event(11, EventKind.STOP_BEGIN, None, agent=1), event(13.5, EventKind.STOP_END, None, agent=1)]
    again = [event(16, EventKind.STOP_BEGIN, None), event(16.5, EventKind.STOP_END, None)]
    return in_time([*one_outage(), *late, *again])


def made_records(run: str = "elastic-made", plan: str = "kill@7:1", **settings) -> list[ElasticRecord]:
    """Return both records of a command, whose elastic run has `one_outage`."""
    common = {
        "run": run,
        "settings": SETTINGS.model_copy(update={"plan": parse_plan(plan), **settings}),
        "started_at": "2026-11-23T12:00:00+00:00",
        "duration_s": 40.0,
    }
    undisturbed = (*steps(4, 0, 20), event(36, EventKind.DONE, loss=1.5, digest="ab"))
    return [
        ElasticRecord(scheme=RunScheme.UNDISTURBED, outcome=Outcome.OK, events=undisturbed, **common),
        ElasticRecord(scheme=RunScheme.ELASTIC, outcome=Outcome.OK, events=one_outage(), **common),
    ]
