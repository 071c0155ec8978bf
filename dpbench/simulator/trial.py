"""Tries the simulator with a torch that it was not tested with, once for each torch and Python.

`self_check.py` runs in a child process, a few seconds long. Its answer lies in the user's cache folder, and is used
until torch, Python or the simulator changes::

    $XDG_CACHE_HOME/dpbench/simulator-torch2.15.0-py3.11.json

A cache that cannot be read or written only costs those seconds again.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from dpbench.results.files import replace_text
from dpbench.sweep.outside import one_line, read_input

LIMIT_S = 120
_HERE = Path(__file__).parent
_CHECK = (sys.executable, "-P", "-m", "dpbench.simulator.self_check")


class Answer(BaseModel):
    """What the self-check found: a fault in one line, or None if the simulator works.

    `simulator` is the `digest` of the simulator that was checked.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    simulator: str
    fault: str | None


def fault_with(torch_version: str, check: Sequence[str] = _CHECK) -> str | None:
    """Return what the simulator gets wrong with the installed torch, None if it works.

    `check` is the command that prints an Answer. A check that ends without one is a fault that is not cached.
    """
    cache = _cache_file(torch_version)
    if (known := _cached(cache)) is not None:
        return known.fault
    answer = _checked(check)
    if isinstance(answer, str):
        return answer
    _remember(cache, answer)
    return answer.fault


def _checked(check: Sequence[str]) -> Answer | str:
    """Run the command and return its Answer, or why there is none."""
    search = (str(_HERE.parents[1]), os.environ.get("PYTHONPATH"))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, search)),
        "CUDA_VISIBLE_DEVICES": "",  # the simulator refuses to start beside a GPU
        "OMP_NUM_THREADS": "1",
    }
    try:
        done = subprocess.run(
            check, check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, env=environment
        )
    except subprocess.TimeoutExpired:
        return f"the self-check had no answer after {LIMIT_S} s"
    with suppress(ValidationError, IndexError):
        return Answer.model_validate_json(done.stdout.splitlines()[-1])
    last = done.stderr.decode(errors="replace").splitlines()[-1:]
    return one_line(": ".join([f"the self-check ended with exit status {done.returncode}", *last]))


def _cache_file(torch_version: str) -> Path:
    root = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not root.is_absolute():
        root = Path(os.path.expanduser("~"), ".cache")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return root / "dpbench" / f"simulator-torch{torch_version}-py{python}.json"


def _cached(cache: Path) -> Answer | None:
    """Return the answer of an earlier process for this simulator, None if there is none that can be used."""
    try:
        answer = Answer.model_validate_json(read_input(cache))
    except (OSError, ValidationError):
        return None
    return answer if answer.simulator == digest() else None


def _remember(cache: Path, answer: Answer) -> None:
    with suppress(OSError):
        cache.parent.mkdir(parents=True, exist_ok=True)
        replace_text(cache, answer.model_dump_json() + "\n")


def digest() -> str:
    """Return a hash of the simulator's sources."""
    found = sha256()
    for path in sorted(_HERE.rglob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()
