"""What must be equal before two records may be compared."""

import platform
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import distributed as dist

import dpbench
from dpbench.results.record import Environment
from dpbench.sweep.machine import cpu_model, usable_cores


def read_environment(devices: Sequence[torch.device]) -> Environment:
    """The environment of this process, as it runs a case on these devices."""
    gpus = [device for device in dict.fromkeys(devices) if device.type != "cpu"]
    commit, dirty = _commit(Path(dpbench.__file__).parent)
    return Environment(
        hostname=socket.gethostname(),
        os=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        torch=torch.__version__,
        cpu_model=cpu_model(),
        cores=usable_cores(),
        gpus=tuple(str(torch.get_device_module(gpu).get_device_properties(gpu).name) for gpu in gpus),
        driver=_driver() if gpus else None,
        cuda=torch.version.cuda,
        nccl=_nccl() if gpus else None,
        dpbench=dpbench.__version__,
        commit=commit,
        dirty=dirty,
    )


def _driver() -> str | None:
    import pynvml

    try:
        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return None


def _nccl() -> str | None:
    if not (dist.is_available() and dist.is_nccl_available()):
        return None
    return ".".join(str(part) for part in torch.cuda.nccl.version())


def _commit(folder: Path) -> tuple[str | None, bool | None]:
    """The commit that dpbench was run from and whether its tree was changed; None outside a checkout."""
    try:
        head = _git(folder, "rev-parse", "HEAD")
        tracked = _git(folder, "ls-files", "--error-unmatch", "__init__.py")
        changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return None, None
    return (head, bool(changes)) if tracked else (None, None)


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()
