"""A fence around code of a commit: it writes to folders of its own and to devices. Linux only.

Landlock refuses other writes, for this process and all that it starts (Documentation/userspace-api/landlock.rst). It
also refuses to trace processes outside the fence, and from version 6 to signal them. It does not refuse reads, chmod or
the network. A descriptor that was open before stays writable.

    python -m dpbench.engine.fence FOLDER ... -- COMMAND ...

runs a commit's command, such as its build.
"""

import ctypes
import os
import struct
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

SCRATCH = "DPBENCH_SCRATCH"
"""The variable with the folder in which each fenced fork makes its own; without it there is no fence."""

_CACHES = (
    *("XDG_CACHE_HOME", "MPLCONFIGDIR", "CUDA_CACHE_PATH", "NUMBA_CACHE_DIR"),
    *("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "CUPY_CACHE_DIR"),
)
"""Folders for compiled code. By default they are in the home folder or beside the sources, which cannot be written."""
_DATA = {"HF_HOME": "huggingface", "TORCH_HOME": "torch"}
"""Data in the user's cache, which a fenced process reads from its old place."""

_STDERR = 2
_CREATE_RULESET = 444  # asm-generic/unistd.h
_ADD_RULE = 445
_RESTRICT_SELF = 446
_SET_NO_NEW_PRIVS = 38  # linux/prctl.h
# linux/landlock.h. Bit 1 writes a file, bits 4 to 12 remove or make one, 13 moves it elsewhere, 14 truncates it.
_VERSION_FLAG = 1
_PATH_BENEATH = 1
_SCOPE_SIGNAL = 2
_WRITES = 1 << 1 | 0x1FF << 4
_MOVE = 1 << 13
_TRUNCATE = 1 << 14
_WITH_MOVE = 2
_WITH_TRUNCATE = 3
_WITH_SCOPE = 6


def landlock_version() -> int:
    """0 if the kernel has none."""
    return max(0, _libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG))


def enclose(*keep: int, folders: Iterable[Path] = ()) -> None:
    """Close all descriptors but 0 to 2 and `keep`, and fence this process if `SCRATCH` is set.

    It may write in `folders` and in a new one, which `TMPDIR` and the variables of caches name. Call it in a new fork
    with one thread. Raise OSError if the kernel refuses.
    """
    for name in os.listdir("/proc/self/fd"):
        if int(name) > _STDERR and int(name) not in keep:
            with suppress(OSError):  # the descriptor of the listing is closed already
                os.close(int(name))
    if scratch := os.environ.pop(SCRATCH, None):
        user_cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
        for name, folder in _DATA.items():
            os.environ.setdefault(name, str(user_cache / folder))
        os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(dir=scratch)
        os.environ.update(dict.fromkeys(_CACHES, tempfile.tempdir))
        sys.dont_write_bytecode = True
        confine([tempfile.tempdir, "/dev", *map(str, folders)])


def confine(folders: Sequence[str]) -> None:
    """Let this thread and those that it starts write in these folders only; a no-op without Landlock.

    Raise OSError if the kernel refuses.
    """
    if not (version := landlock_version()):
        return
    rights = _WRITES | _MOVE * (version >= _WITH_MOVE) | _TRUNCATE * (version >= _WITH_TRUNCATE)
    attributes = struct.pack("=QQQ", rights, 0, _SCOPE_SIGNAL * (version >= _WITH_SCOPE))
    ruleset = _checked(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    for folder in folders:
        fd = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        _checked(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, fd), 0)
        os.close(fd)
    if _libc().prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS) failed")
    _checked(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _checked(number: int, *arguments: object) -> int:
    result: int = _libc().syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"Landlock: system call {number} failed")
    return result


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _run() -> None:
    split = sys.argv.index("--")
    enclose(folders=map(Path, sys.argv[1:split]))
    os.execvp(sys.argv[split + 1], sys.argv[split + 1 :])  # noqa: S606  # the settings name the command


if __name__ == "__main__":
    _run()
