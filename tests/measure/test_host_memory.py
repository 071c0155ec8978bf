"""The next step must not take memory from the kernel that the step before has freed."""

import subprocess
import sys

import pytest

# Each count runs in a process of its own, because this process may have freed a large block before.
FAULTS = """
import resource
import torch
from dpbench.measure.memory import settle_host_memory

def faults_of_a_step():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [torch.zeros(4096) for _ in range(2048)]
    del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if {is_settled}:
    settle_host_memory()
faults_of_a_step()
print(sum(faults_of_a_step() for _ in range(5)))
"""


def faults(is_settled):
    code = FAULTS.format(is_settled=is_settled)
    return int(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's thresholds are what is settled")
def test_a_settled_process_keeps_what_a_step_frees():
    # 32 MiB a step are 8,192 pages.
    assert faults(is_settled=True) < 1000


def test_settling_uses_no_memory():
    code = FAULTS.split("def", maxsplit=1)[0] + (
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "settle_host_memory()\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    grown_kib = int(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
    assert grown_kib < 1024
