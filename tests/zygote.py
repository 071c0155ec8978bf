"""A fork server for dpbench's children in tests: it has imported torch, which takes a child two seconds of a core.

    pytest's worker                            zygote, idle but for forks
      │  ── module, arguments, descriptors ─────>  forks twice; the first fork ends, so that pytest's worker,
      │  <─ pid ────────────────────────────────   a subreaper while it launches, adopts the second

A child is a new process if it imports no torch, or if its environment differs in what is read at the start.
`make test-all` starts all children anew.
"""

import json
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from socket import AF_UNIX, SOCK_SEQPACKET, send_fds, socketpair
from types import SimpleNamespace
from typing import Any

import pytest

from dpbench.engine import launch, start
from dpbench.jobs import round as round_module

_PROCESS = Path(__file__).with_name("zygote_process.py")
_INTERPRETER = (sys.executable, "-P", "-X", "faulthandler")
_READ_AT_START = ("PYTHON", "LD_", "OMP_", "MKL_", "KMP_", "TORCH", "CUDA", "NVIDIA", "PYTORCH", "GLOO")
_FIXED = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
"""Children that count want these values. Others do not set these variables, and may have any value."""
_PATH = "PYTHONPATH"
"""A child of a zygote gets it, too."""
_OF_LIBRARIES = ("KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK", "TORCHINDUCTOR_CACHE_DIR")
"""scikit-learn sets the first two in the process of the tests, and torch's compiler the last."""
_WITH_TORCH = ("count", "lockstep", "probe", "round", "scripts", "trace", "ways")
_WITHOUT_TORCH = (b'"start_ups":[{', b'"workload":"asv ', b'"workload":"pytest ')
"""In requests for a process that times an import, or that runs benchmarks of asv or pytest."""
_MOST_BYTES = 1 << 17


class ZygoteChild:
    """What `dpbench.engine.launch` uses of a `subprocess.Popen`."""

    def __init__(self, pid: int, command: Sequence[str]) -> None:
        self.pid, self.args = pid, command
        self.returncode: int | None = None

    def kill(self) -> None:
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            ended = os.pidfd_open(self.pid)
            try:
                if not select.select([ended], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            finally:
                os.close(ended)
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode


class Zygote:
    def __init__(self) -> None:
        self._ours, theirs = socketpair(AF_UNIX, SOCK_SEQPACKET)
        with theirs:
            command = [*_INTERPRETER, str(_PROCESS), str(theirs.fileno())]
            environment = {**os.environ, **_FIXED}
            environment.pop(_PATH, None)
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], start_new_session=True, env=environment
            )
        self._environment = _at_start(environment)
        self._limits = _limits()

    def close(self) -> None:
        self._ours.close()
        self._process.wait()

    def popen(self, command: list[str], **options: Any) -> Any:
        """As `subprocess.Popen`."""
        environment = dict(options.get("env") or os.environ)
        words = list(command)
        if words[0] == "env":
            del words[0]
            while "=" in words[0]:
                name, _, environment[name] = words.pop(0).partition("=")
        if (
            words[:5] != [*_INTERPRETER, start.__file__]
            or _FIXED | _at_start(environment) != self._environment
            or _limits() != self._limits
            or words[5] not in [f"dpbench.jobs.{name}_child" for name in _WITH_TORCH]
            or _is_without_torch(options["stdin"])
        ):
            return subprocess.Popen(command, **options)
        request = {
            "arguments": words[4:],
            "environment": environment,
            "folder": os.getcwd(),
            "parent": os.getpid(),
            "descriptors": [0, 1, 2, *options["pass_fds"]],
        }
        with open(os.devnull, "rb") as null:
            streams = [options[name] for name in ("stdin", "stdout", "stderr")]
            files = [null if stream is subprocess.DEVNULL else stream for stream in streams]
            descriptors = [file if isinstance(file, int) else file.fileno() for file in files]
            send_fds(self._ours, [json.dumps(request).encode()], [*descriptors, *options["pass_fds"]])
        return ZygoteChild(int(self._ours.recv(_MOST_BYTES)), command)


def _at_start(environment: Any) -> dict[str, str]:
    names = [name for name in environment if name.startswith(_READ_AT_START) and name not in (_PATH, *_OF_LIBRARIES)]
    return {name: environment[name] for name in names}


def _is_without_torch(stdin: Any) -> bool:
    """`stdin` has the request; it is a file in memory, but for rounds."""
    request = b"" if stdin is subprocess.DEVNULL else os.pread(stdin.fileno(), _MOST_BYTES, 0)
    return any(part in request for part in _WITHOUT_TORCH)


def _limits() -> list[tuple[int, int]]:
    kinds = (resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC)
    return list(map(resource.getrlimit, kinds))


@pytest.fixture(scope="module", autouse=True)
def children_of_a_zygote(zygote: Zygote | None) -> Iterator[None]:
    """The children of `dpbench.engine.launch` and `dpbench.jobs.round`, in a room that imports this fixture."""
    if zygote is None:
        yield
        return
    forking = SimpleNamespace(**vars(subprocess) | {"Popen": zygote.popen})
    with _started_by(forking):
        yield


@contextmanager
def new_children() -> Iterator[None]:
    """Inside the block each child starts anew. In a fork of the zygote a call may be counted at another line."""
    with _started_by(subprocess):
        yield


@contextmanager
def _started_by(module: Any) -> Iterator[None]:
    before = launch.subprocess
    launch.subprocess = round_module.subprocess = module
    try:
        yield
    finally:
        launch.subprocess = round_module.subprocess = before
