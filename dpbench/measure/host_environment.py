"""The environment of a process without torch: the host's part of it."""

import platform
import socket
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import dpbench
from dpbench.cases.host import affinity, commit_of, cpu_governor, cpu_model, read_limits, usable_cores
from dpbench.records.record import Environment


def host_environment() -> Environment:
    """The environment without GPUs; torch's version is the installed one, or ``none``."""
    limits = read_limits()
    commit, dirty = commit_of(Path(dpbench.__file__).parent)
    return Environment(
        hostname=socket.gethostname(),
        os=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        torch=_torch_version(),
        cpu_model=cpu_model(),
        cores=usable_cores(),
        gil=_has_gil(),
        affinity=affinity(),
        cpu_governor=cpu_governor(),
        cpu_limit=limits.cpus,
        memory_limit_bytes=limits.memory_bytes,
        dpbench=dpbench.__version__,
        commit=commit,
        dirty=dirty,
    )


def _torch_version() -> str:
    try:
        return version("torch")
    except PackageNotFoundError:
        return "none"


def _has_gil() -> bool:
    is_enabled = getattr(sys, "_is_gil_enabled", None)
    return is_enabled is None or is_enabled()
