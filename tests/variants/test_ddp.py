import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RANKS = 2


@pytest.mark.parametrize("name", ["convnet/tiny", "transformer/tiny", "embedding_sparse/tiny"])
def test_two_rank_processes_average_the_plain_modules_gradients(name, tmp_path):
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.variants.ddp_rank", name, "6", str(rank), str(RANKS), tmp_path / "store"],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(RANKS)
    ]
    try:
        results = [process.communicate(timeout=120) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    for rank, (process, (out, err)) in enumerate(zip(ranks, results, strict=True)):
        assert process.returncode == 0, err
        answer = json.loads(out.splitlines()[-1])  # gloo of torch 2.9 prints too
        assert answer["rank"] == rank
        assert answer["gradients"] > 0
