"""`make gpu` rehearses here from its first step to its last. The times mean nothing."""

import json
import subprocess
import sys

import pytest

from benchmarks.instruments.on_gpu import CALLS_S
from tests.on_cuda.translated import ROOT

CODES = {1: 3, 2: 1, None: 1}
"""Exit codes of `on_gpu`: there is no nvidia-smi, no NCCL for ddp, and no CUPTI for a recorded trace."""


@pytest.mark.timeout(2400)
@pytest.mark.parametrize("call", [*CALLS_S, None])
def test_every_step_of_make_gpu_passes_but_for_nvidia_smi_ddp_and_the_trace(call, tmp_path):
    command = [sys.executable, "-m", "benchmarks.instruments.on_gpu", "--rehearse", "--out", str(tmp_path / "out")]
    done = subprocess.run(
        [*command, *(["--call", str(call)] if call else [])], cwd=ROOT, capture_output=True, text=True, check=False
    )
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    print("\n".join(line for line in done.stdout.splitlines() if line.startswith("gpu:")))  # noqa: T201
    skipped = {step["name"]: step["note"] for step in summary["steps"] if step["outcome"] == "skipped"}
    failed = {step["name"] for step in summary["steps"] if step["name"] not in skipped and step["outcome"] != "passed"}
    assert failed == ({"trace"} if call != 1 else set()), done.stdout
    skipped.pop("nvidia_smi", None)
    for note in skipped.values():
        assert {variant.split(" on ")[0] for variant in note.split("no times of ")[1].split(", ")} == {"ddp"}, note
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert call is None or len(files) <= 8
    assert done.returncode == CODES[call]
