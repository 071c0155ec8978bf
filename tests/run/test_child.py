"""The ends of a child's life."""

import gc
import os
import subprocess
import sys

import pytest

from dpbench.run.child.process import loading


def test_the_collector_rests_while_loading_and_works_again_afterwards():
    assert gc.isenabled()
    with loading():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ImportError), loading():
        raise ImportError
    assert gc.isenabled()


def test_an_answer_is_whole_and_nothing_runs_after_it():
    reader, writer = os.pipe()
    code = (
        "import atexit; from dpbench.run.child.process import answer; print('said', end='');"
        f"atexit.register(print, 'too late'); answer({writer}, 'x' * 100_000)"
    )
    child = subprocess.Popen([sys.executable, "-c", code], pass_fds=[writer], stdout=subprocess.PIPE)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        assert pipe.read() == "x" * 100_000
    said, _ = child.communicate()
    assert (said, child.returncode) == (b"said", 0)
