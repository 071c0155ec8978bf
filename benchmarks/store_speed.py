"""Seconds to plan, resume, append to and read large sweeps.

    python -m benchmarks.store_speed

The records have phases, an environment, and 20 or 100 samples each.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, product
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.about import heading
from dpbench.measure.phases import PHASES
from dpbench.results.record import Environment, Metrics, Outcome, Record, to_line
from dpbench.results.store import Store
from dpbench.run.run_sweep import run_sweep
from dpbench.sweep.case import Case
from dpbench.sweep.machine_info import MachineInfo
from dpbench.sweep.plan import plan
from dpbench.sweep.spec import Spec

_CASES, _MANY, _APPENDED = 1_000, 100_000, 200
MACHINE = MachineInfo(
    python="3.11", torch="2.13.0", cpu_model="a CPU", cores=64, memory_bytes=2**36, backends=("gloo",)
)
ENVIRONMENT = Environment(
    hostname="here", os="Linux", python="3.11.7", torch="2.13.0", cpu_model="a CPU", cores=64, dpbench="0.1.0"
)
METRICS = Metrics(
    threads_per_lane=1,
    warmup_steps=12,
    stopped_by="interval",
    relative_error=1e-7,
    loss_first=2.3,
    loss_last=1.9,
    peak_rss_bytes=2**28,
    phases_s=dict.fromkeys(PHASES, 0.00123456),
)


def main() -> None:
    print(heading("benchmarks.store_speed"))
    with TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        spec = spec_of_1000()
        with timed(f"planning {_CASES:,} cases"):
            planned = plan(spec, MACHINE)
        assert len(planned.cases) == _CASES
        resume(Path(folder) / "sweep.jsonl", spec)
        for samples in (20, 100):
            append_and_read(Path(folder) / f"{samples}.jsonl", planned.cases, samples)


def spec_of_1000() -> Spec:
    """Return a spec of 20 batches, 6 lists of lanes, 2 workloads and 4 variants.

    With `single` for each batch and workload it has 1,000 cases.
    """
    return Spec.model_validate(
        {
            "variants": ["naive", "floor", "tuned", "ddp"],
            "workloads": ["mlp/tiny", "mlp/small"],
            "batch": [64 * n for n in range(1, 21)],
            "devices": [f"cpu*{n}" for n in range(2, 8)],
            "rounds": 1,
        }
    )


def resume(path: Path, spec: Spec) -> None:
    planned = plan(spec, MACHINE)
    path.write_bytes(b"".join(to_line(record(case, 0)) for case in planned.cases))
    with timed(f"resuming a finished sweep of {_CASES:,} cases"):
        found = run_sweep(spec, planned, Store(path), lambda _: None)
    assert len(found.records) == _CASES


def append_and_read(path: Path, cases: Sequence[Case], samples: int) -> None:
    first_s = append_s(path, cases, 0, samples)
    numbers = range(1, (_MANY - 2 * _APPENDED) // len(cases) + 2)
    lines = (to_line(record(case, number, samples)) for number, case in product(numbers, cases))
    with path.open("ab") as file:
        file.writelines(islice(lines, _MANY - 2 * _APPENDED))
    last_s = append_s(path, cases, _MANY, samples)
    print(
        f"appending a record of {samples} samples: {first_s * 1e3:.2f} ms to an empty file, {last_s * 1e3:.2f} ms to "
        f"one of {_MANY - _APPENDED:,}"
    )
    with timed(f"reading {_MANY:,} records of {samples} samples, {path.stat().st_size / 1e6:,.0f} MB"):
        found = Store(path).read().records
    assert len(found) == _MANY


def append_s(path: Path, cases: Sequence[Case], number: int, samples: int) -> float:
    times_s = []
    with Store(path) as store:
        for case in cases[:_APPENDED]:
            new = record(case, number, samples)
            start_s = time.perf_counter()
            store.append(new)
            times_s.append(time.perf_counter() - start_s)
    return median(times_s)


def record(case: Case, number: int, samples: int = 20) -> Record:
    return Record(
        run="a run",
        case=case,
        round=number,
        started_at="2026-01-01T00:00:00.000+00:00",
        outcome=Outcome.OK,
        samples_s=tuple(0.0123456789 + 1e-9 * i for i in range(samples)),
        metrics=METRICS,
        environment=ENVIRONMENT,
    )


@contextmanager
def timed(what: str) -> Iterator[None]:
    start_s, cpu_s = time.perf_counter(), time.process_time()
    yield
    print(f"{what}: {time.perf_counter() - start_s:.2f} s, {time.process_time() - cpu_s:.2f} s of it on the CPU")


if __name__ == "__main__":
    main()
