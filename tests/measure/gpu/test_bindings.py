"""An old distribution `pynvml` is a package, which hides the file of NVIDIA's nvidia-ml-py."""

import os
import subprocess
import sys
from pathlib import Path

import pynvml

CODE = "from dpbench.measure.gpu.{module} import pynvml as one; import pynvml; print(one.__file__, one is pynvml)"
ROOT = Path(__file__).parents[3]


def imported(folder, module):
    (folder / "pynvml").mkdir()
    (folder / "pynvml/__init__.py").write_text("def nvmlInit(): pass\n")
    given = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    words = [sys.executable, "-c", CODE.format(module=module)]
    return subprocess.run(words, env=given, capture_output=True, text=True, check=True).stdout


def test_nvidias_module_is_taken_although_an_older_package_hides_it(tmp_path):
    assert imported(tmp_path, "telemetry") == f"{pynvml.__file__} True\n"
