"""Small suites of strangers in a commit's folder, as a gate's children see them."""

from pathlib import Path

from dpbench.cases.case import Case
from dpbench.engine.messages import CountJob, Listing, Listings, ListJob, ListJobs
from dpbench.gate.benchmarks import LISTER
from dpbench.jobs.count import run_jobs
from dpbench.records.count_record import CountRecord

CONFIGURATION = '{"version": 1, "project": "toy", "repo": ".", "benchmark_dir": "suite"}'


def write_suite(folder: Path, files: dict[str, str]) -> Path:
    """Write files of a commit, beside them its empty scratch folder, and an asv configuration unless there is one."""
    for name, text in {"asv.conf.json": CONFIGURATION, "suite/__init__.py": "", **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    folder.with_name(f"{folder.name}-scratch").mkdir(exist_ok=True)
    return folder


def listed(folder: Path, suite: str, text: str = ".", timeout_s: float = 60.0) -> Listing:
    job = ListJob(suite=suite, text=text, pattern=True, folder=str(folder))
    end = LISTER.run(ListJobs(jobs=(job,), timeout_s=timeout_s), 300.0).exit
    assert end.returncode == 0, end.tail.decode()
    return Listings.model_validate_json(end.record).listings[0]


def refused(folder: Path, suite: str, text: str = ".") -> dict[str, tuple[str | None, bool]]:
    """Return by the last part of its name why each benchmark is refused, and whether its owner skips it."""
    meant = listed(folder, suite, text).meant
    return {entry.name.rpartition("::")[2].rpartition(".")[2]: (entry.refused, entry.is_skipped) for entry in meant}


def counted(folder: Path, *workloads: str) -> tuple[CountRecord, ...]:
    return run_jobs([CountJob(case=case_of(workload), folder=str(folder)) for workload in workloads])


def case_of(workload: str) -> Case:
    return Case(variant="single", workload=workload, batch=1, devices=("cpu",), threads=1)
