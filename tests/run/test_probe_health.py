import subprocess
import sys

from dpbench.results.finding import ok
from dpbench.run import probe_health
from dpbench.run.probe_health import examine


def test_what_cannot_be_looked_at_is_unknown_and_the_rest_is_looked_at(monkeypatch):
    def broken():
        raise RuntimeError("CUDA error: unknown error\nmore lines")

    monkeypatch.setattr(probe_health, "examine_host", lambda: [ok("other load", "0 %")])
    monkeypatch.setattr(probe_health, "examine_packages", lambda: [ok("distribution", "torch-dpbench 0.1.0")])
    monkeypatch.setattr(probe_health, "_gpus", broken)
    monkeypatch.setattr(probe_health, "_links", list)
    monkeypatch.setattr(probe_health, "_bandwidth", lambda: [ok("host memory bandwidth", "9 GB/s")])
    found = examine()
    assert [finding.what for finding in found] == ["other load", "distribution", "GPUs", "host memory bandwidth"]
    assert found[2].value == "unknown: RuntimeError: CUDA error: unknown error"


def test_the_host_is_looked_at_before_torch_is_loaded():
    code = "import sys, dpbench.run.probe_health; sys.exit(sum(name in sys.modules for name in ('torch', 'pynvml')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
