import subprocess
import sys

from dpbench.doctor.child import examine as examine_module
from dpbench.doctor.child.examine import examine
from dpbench.doctor.findings import ok


def test_an_examination_that_raises_is_unknown_and_the_others_still_run(monkeypatch):
    def broken():
        raise RuntimeError("CUDA error: unknown error\nmore lines")

    monkeypatch.setattr(examine_module, "examine_host", lambda: [ok("other load", "0 %")])
    monkeypatch.setattr(examine_module, "examine_packages", lambda: [ok("distribution", "torch-dpbench 0.1.0")])
    monkeypatch.setattr(examine_module, "_gpus", broken)
    monkeypatch.setattr(examine_module, "_links", list)
    monkeypatch.setattr(examine_module, "_bandwidth", lambda: [ok("host memory bandwidth", "9 GB/s")])
    findings = examine()
    assert [finding.what for finding in findings] == ["other load", "distribution", "GPUs", "host memory bandwidth"]
    assert findings[2].value == "unknown: RuntimeError: CUDA error: unknown error"


def test_importing_the_examination_imports_neither_torch_nor_nvml():
    code = (
        "import sys, dpbench.doctor.child.examine; sys.exit(sum(name in sys.modules for name in ('torch', 'pynvml')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
