"""This project's own asv and pytest suites run, on their smallest settings."""

import json
import math
import os
import subprocess
import sys

import pytest

from tests.benchmarks.conftest import ROOT
from tests.sampling import sampled

RUN_EACH = """
import json, sys
from pathlib import Path

from asv_runner.benchmarks.mark import SkipNotImplemented
from dpbench.measure.borrowed.asv_suite import _set_up, find_asv
from dpbench.measure.borrowed.lent import SkippedError
from tests.sampling import sampled

caches, root = map(Path, sys.argv[1:])
found, problems, _ = find_asv(root)
assert not problems, problems
smallest = {}
for name in found:
    if "(" not in name or name.partition("(")[2].startswith("'tuned'"):
        smallest.setdefault(name.partition("(")[0], name)
assert len(smallest) == len({name.partition("(")[0] for name in found})
on_cpu = [name for name in smallest.values() if not name.startswith("gpu.")]
assert len(on_cpu) == 8
for name in [*sampled(on_cpu, 3), *(set(smallest.values()) - set(on_cpu))]:
    try:
        with _set_up(root, name, caches, None) as benchmark:
            result = benchmark.do_run()
        outcome = result["samples"] if isinstance(result, dict) else [result]
    except (SkipNotImplemented, SkippedError) as reason:
        outcome = f"skipped: {reason}"
    print(f"RAN {name}\t{json.dumps(outcome)}", flush=True)
"""


@pytest.mark.timeout(500)
def test_a_sample_of_the_asv_suite_runs_or_says_why_not(tmp_path):
    command = [sys.executable, "-c", RUN_EACH, tmp_path / "caches", ROOT]
    (tmp_path / "caches").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=480, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    ran = dict(line[4:].split("\t") for line in done.stdout.splitlines() if line.startswith("RAN "))
    print("\n".join(f"{name}: {outcome[:80]}" for name, outcome in ran.items()))  # noqa: T201
    on_gpus = {name for name in ran if name.startswith("gpu.")}
    measured = [json.loads(outcome) for name, outcome in ran.items() if name not in on_gpus]
    assert on_gpus
    assert len(measured) == len(sampled(range(8), 3))
    assert all(math.isfinite(value) and value >= 0 for values in measured for value in values)


@pytest.mark.timeout(500)
def test_a_sample_of_the_pytest_suite_passes():
    files = sorted(map(str, (ROOT / "benchmarks/pytest_suite").glob("test_*.py")))
    ratios = str(ROOT / "benchmarks/pytest_suite/test_ratios.py")
    words = [
        "-m",
        "pytest",
        *dict.fromkeys([ratios, *sampled(files, 2)]),
        "--sizes",
        "smallest",
        "-q",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(
        [sys.executable, *words, "-p", "no:xdist"], cwd=ROOT, capture_output=True, text=True, timeout=480, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "measured in this run" in done.stdout
    assert "failed" not in done.stdout.splitlines()[-1]
