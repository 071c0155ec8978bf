"""What a child does while it imports, and when it ends."""

import gc
import os
import subprocess
import sys

import pytest

from dpbench.engine.child import loading


def test_the_garbage_collector_is_off_while_loading_and_on_afterwards():
    assert gc.isenabled()
    with loading():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ImportError), loading():
        raise ImportError
    assert gc.isenabled()


def test_a_response_is_complete_and_nothing_runs_after_it():
    reader, writer = os.pipe()
    code = (
        "import atexit; from dpbench.engine.child import send; print('said', end='');"
        f"atexit.register(print, 'too late'); send({writer}, 'x' * 100_000)"
    )
    child = subprocess.Popen([sys.executable, "-c", code], pass_fds=[writer], stdout=subprocess.PIPE)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        assert pipe.read() == "x" * 100_000
    said, _ = child.communicate()
    assert (said, child.returncode) == (b"said", 0)
