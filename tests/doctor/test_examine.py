import subprocess
import sys

from dpbench.doctor.child import examine as examine_module
from dpbench.doctor.child.examine import examine
from dpbench.doctor.findings import ok


def test_what_cannot_be_looked_at_is_unknown_and_the_rest_is_looked_at(monkeypatch):
    def broken():
        raise RuntimeError("CUDA error: unknown error\nmore lines")

    monkeypatch.setattr(examine_module, "examine_host", lambda: [ok("other load", "0 %")])
    monkeypatch.setattr(examine_module, "examine_packages", lambda: [ok("distribution", "torch-dpbench 0.1.0")])
    monkeypatch.setattr(examine_module, "_gpus", broken)
    monkeypatch.setattr(examine_module, "_links", list)
    monkeypatch.setattr(examine_module, "_bandwidth", lambda: [ok("host memory bandwidth", "9 GB/s")])
    found = examine()
    assert [finding.what for finding in found] == ["other load", "distribution", "GPUs", "host memory bandwidth"]
    assert found[2].value == "unknown: RuntimeError: CUDA error: unknown error"


def test_the_host_is_looked_at_before_torch_is_loaded():
    code = (
        "import sys, dpbench.doctor.child.examine; sys.exit(sum(name in sys.modules for name in ('torch', 'pynvml')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
