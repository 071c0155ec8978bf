"""All that depends on torch's version."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch

from dpbench import __version__
from dpbench.text.files import cache_folder, replace_text

TESTED = ("2.13", "2.14")
_RELEASE = re.compile(r"(\d+)\.(\d+)")
_CHECK = "dpbench.measure.simulator_check"
_CHECK_LIMIT_S = 300
_PACKAGES = str(Path(__file__).parents[2])


def why_unsupported(version: str) -> str | None:
    """None for a tested release, and for a newer one that passes the self-check."""
    fault = self_check(version) if _is_newer(version) else None
    if _release(version) in map(_release, TESTED) or (_is_newer(version) and fault is None):
        return None
    failed = f", with which its self-check fails: {fault}" if fault else ""
    return (
        f"the simulator was tested with torch {', '.join(TESTED)}; this is {version}{failed}; allowed: one of these, "
        f"such as `pip install torch=={TESTED[-1]}.*`. CONTRIBUTING.md says how to add a version"
    )


def note_on(version: str) -> str | None:
    """A line for the user if the self-check alone lets this torch run."""
    if not _is_newer(version) or self_check(version) is not None:
        return None
    return f"torch {version} is newer than the simulator was tested with ({TESTED[-1]}); its self-check passes"


@cache
def self_check(version: str) -> str | None:
    """What the simulator gets wrong with this torch, None for nothing. It takes seconds, in a process of its own.

    That it has passed is kept in the user's cache, for this version of torch and of dpbench.
    """
    passed = cache_folder() / "simulator" / f"torch-{version}-dpbench-{__version__}"
    with suppress(OSError):
        if passed.is_file():
            return None
    folders = os.pathsep.join(filter(None, [_PACKAGES, os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": folders}
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", _CHECK],
            check=True,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_CHECK_LIMIT_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return " ".join([str(error), *(getattr(error, "stderr", None) or "").splitlines()[-1:]])
    if fault := done.stdout.strip():
        return fault
    with suppress(OSError):
        passed.parent.mkdir(parents=True, exist_ok=True)
        replace_text(passed, "")
    return None


def _is_newer(version: str) -> bool:
    return _release(version) > max(map(_release, TESTED))


def _release(version: str) -> tuple[int, ...]:
    match = _RELEASE.match(version)
    return tuple(map(int, match.groups())) if match else ()


def function_apply() -> Callable[..., Any]:
    """A ``classmethod`` in torch 2.13, and a class method of C since 2.14, which has no ``__func__``."""
    method = torch.autograd.Function.__dict__["apply"]

    def apply(cls: type, *args: Any, **kwargs: Any) -> Any:
        return method.__get__(None, cls)(*args, **kwargs)

    return apply
