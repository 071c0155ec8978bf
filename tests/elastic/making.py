"""Hand-made events of elastic runs. Times are in seconds."""

from dpbench.elastic.elastic_record import CheckpointBackend, ElasticEvent, ElasticSettings, EventKind
from dpbench.elastic.events import merged

SETTINGS = ElasticSettings(
    workload="mlp/tiny",
    ranks=2,
    steps=20,
    batch=8,
    dtype="float32",
    checkpoint_every=5,
    backend=CheckpointBackend.TORCH_SAVE,
    max_restarts=3,
    hang_timeout_s=30.0,
    seed=0,
)


def event(at_s: float, kind: EventKind, rank: int | None = 0, **fields) -> ElasticEvent:
    return ElasticEvent(at_ns=round(at_s * 1e9), kind=kind, pid=1, rank=rank, **fields)


def steps(begin_s: float, first: int, end: int, every_s: float = 1.0) -> list[ElasticEvent]:
    """Rank 0 takes the steps first to end-1; the first one ends at begin_s."""
    return [event(begin_s + every_s * n, EventKind.STEP, step=step) for n, step in enumerate(range(first, end))]


def one_outage() -> tuple[ElasticEvent, ...]:
    """Seven steps, a kill of rank 1 at 10 s, a restart from 5 steps. Rank 0 stamps step 6 after the fault."""
    return merged(
        [
            *steps(4, 0, 6),
            event(9.05, EventKind.CHECKPOINT_END, step=5),
            event(10, EventKind.FAULT, rank=1, step=7, detail="kill"),
            event(10.01, EventKind.STEP, step=6),
            event(11, EventKind.STOP_BEGIN, rank=None),
            event(11.5, EventKind.STOP_END, rank=None),
            event(11.5, EventKind.RENDEZVOUS_BEGIN, rank=None),
            event(14, EventKind.RENDEZVOUS_END, rank=None),
            event(14.25, EventKind.START_BEGIN, rank=None),
            event(18, EventKind.READY, rank=1),
            event(18, EventKind.RESTORE_BEGIN, rank=1),
            event(19, EventKind.READY),
            event(19, EventKind.RESTORE_BEGIN),
            event(20, EventKind.RESTORE_END, rank=1, step=5),
            event(20.5, EventKind.RESTORE_END, step=5),
            *steps(21.5, 5, 20),
            event(36, EventKind.DONE, loss=1.5, digest="ab"),
        ]
    )
