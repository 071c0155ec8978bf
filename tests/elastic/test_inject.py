"""The worker's failures are real ones."""

import subprocess
import sys


def test_out_of_memory_is_an_allocation_that_failed():
    code = "from dpbench.elastic.child.inject import _run_out_of_memory as fail; fail()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "can't allocate memory" in done.stderr
