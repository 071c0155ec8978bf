"""The process of a zygote (tests/zygote.py). It imports nothing of dpbench, so that each child imports its own."""

import fcntl
import gc
import json
import os
import runpy
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from importlib import import_module
from socket import recv_fds, socket
from typing import Any

_IMPORTED = ("numpy", "psutil", "pydantic", "torch", "torch._dynamo", "torch.distributed.tensor")
_MOST_BYTES = 1 << 17
_MOST_DESCRIPTORS = 16
_ABOVE = 200
"""Received descriptors are moved above those that a child expects."""


def _serve(requests: socket) -> None:
    for module in _IMPORTED:
        import_module(module)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    while True:
        message, descriptors, *_ = recv_fds(requests, _MOST_BYTES, _MOST_DESCRIPTORS)
        if not message:
            return
        reader, writer = os.pipe()
        between = os.fork()
        if between == 0:
            pid = os.fork()
            if pid:
                os.write(writer, str(pid).encode())
                os._exit(0)
            _be_child(json.loads(message), descriptors)
        os.waitpid(between, 0)
        requests.send(os.read(reader, 64))
        for descriptor in (*descriptors, reader, writer):
            os.close(descriptor)


def _be_child(request: dict[str, Any], descriptors: Sequence[int]) -> None:
    status = 1
    try:
        while os.getppid() != request["parent"]:  # until it is adopted
            time.sleep(0.0005)
        os.setsid()
        moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, _ABOVE) for descriptor in descriptors]
        os.closerange(3, _ABOVE)
        for place, descriptor in zip(request["descriptors"], moved, strict=True):
            os.dup2(descriptor, place)
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.path[:0] = filter(None, request["environment"].get("PYTHONPATH", "").split(os.pathsep))
        os.chdir(request["folder"])
        sys.argv = request["arguments"]
        runpy.run_path(sys.argv[0], run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve(socket(fileno=int(sys.argv[1])))
