"""Record a step on simulated devices at small batches, for any batch, and keep it in the user's cache folder.

    $XDG_CACHE_HOME/dpbench/steps/<key>.json.gz

The key holds all that decides the step: workload, variant, lanes, the sources of dpbench, the versions of torch and
Python, and the file of a user's factory. Files that this one imports are not in the key. A cache that cannot
be read or written costs only the time of a new recording.
"""

import json
import os
import sys
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory

from dpbench import __version__
from dpbench.cases.case import Case
from dpbench.cases.variants import VariantId, VariantName
from dpbench.processes.count_all import CountingError, NotCountableError, run_jobs
from dpbench.processes.launch import Launcher, launch
from dpbench.processes.messages import CountJob
from dpbench.projection.affine import AffineStep, merge
from dpbench.records.record import Outcome
from dpbench.records.recording import Recording

ITEMS_PER_LANE = (2, 3)
CHECKED_ITEMS = (*ITEMS_PER_LANE, 4)
"""On one device a third recording checks the line through the others. Several lanes run the same operators."""
TIMEOUT_S = 600.0
_ROOT = Path(__file__).parents[1]


def record_step(
    workload: str, variant: str, lanes: int, *, folder: Path | None = None, launch: Launcher = launch
) -> AffineStep:
    """Return the step of a variant on `lanes` simulated devices, for any batch, from the cache or recorded now.

    The step of `ddp` is that of `single`, with the order in which its gradients are ready. The step of graphs is the
    eager one in sequence, because simulated devices capture nothing. `folder` is the cache's
    folder; None means the user's. Raise NotCountableError if the case cannot be recorded, CountingError if its child
    fails, and NotAffineError.
    """
    own = VariantId(variant)
    if own.name is VariantName.DDP:
        own = VariantId(VariantName.SINGLE)
    if own.values.get("graphs"):
        own = own.with_parameters(dispatch="sequence")
    lanes = 1 if own.name is VariantName.SINGLE else lanes
    path = (folder or cache_folder()) / f"{step_key(workload, own, lanes)}.json.gz"
    with suppress(OSError, ValueError):
        return AffineStep.read(path)
    step = merge(_recorded(workload, own, lanes, launch))
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        step.write(path)
    return step


def cache_folder() -> Path:
    """Return the user's folder for recorded steps."""
    root = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not root.is_absolute():
        root = Path(os.path.expanduser("~"), ".cache")
    return root / "dpbench" / "steps"


def step_key(workload: str, variant: str, lanes: int) -> str:
    """Return the name of the step's file in the cache, without its ending."""
    python = ".".join(map(str, sys.version_info[:3]))
    parts = (workload, variant, lanes, CHECKED_ITEMS, __version__, _torch_version(), python, _sources())
    return sha256(json.dumps([*parts, _factory_file(workload)]).encode()).hexdigest()[:32]


def _recorded(workload: str, variant: VariantId, lanes: int, launch: Launcher) -> dict[int, Recording]:
    """Return the recording at each global batch."""
    is_single = variant.name is VariantName.SINGLE
    devices = tuple(f"sim:{index}" for index in range(lanes))
    batches = [items * lanes for items in (CHECKED_ITEMS if is_single else ITEMS_PER_LANE)]
    with TemporaryDirectory(prefix="dpbench-steps-") as name:
        files = {batch: Path(name, f"{batch}.jsonl") for batch in batches}
        jobs = [
            CountJob(
                case=Case(variant=variant, workload=workload, batch=batch, devices=devices, threads=1),
                events=str(path),
                numbers=False,
                gradients=is_single,
            )
            for batch, path in files.items()
        ]
        for record in run_jobs(jobs, launch=launch, timeout_s=TIMEOUT_S):
            if record.outcome is Outcome.SKIPPED:
                raise NotCountableError(record.why)
            if record.outcome is not Outcome.OK:
                raise CountingError(f"recording {record.case.id} failed: {record.why}")
        return {batch: Recording.read(path) for batch, path in files.items()}


def _torch_version() -> str:
    try:
        return version("torch")
    except PackageNotFoundError:
        return ""


@cache
def _sources() -> str:
    """Return a hash of all sources of dpbench: a list of those that decide a recording would forget one."""
    found = sha256()
    for path in sorted(_ROOT.rglob("*.py")):
        found.update(str(path.relative_to(_ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


def _factory_file(workload: str) -> str:
    """Return a hash of the file that defines a user's factory; empty for a workload of dpbench."""
    module, colon, _ = workload.partition(":")
    if not colon:
        return ""
    path = _file_of(module)
    return "" if path is None else sha256(path.read_bytes()).hexdigest()


def _file_of(module: str) -> Path | None:
    """Return the file of a module, found as a child of this process finds it; nothing is imported."""
    path = Path(*module.split("."))
    for root in ("", *sys.path):
        for candidate in (Path(root, path.with_suffix(".py")), Path(root, path, "__init__.py")):
            if candidate.is_file():
                return candidate
    return None
