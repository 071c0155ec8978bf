"""What a fenced process may write: a new folder, which the variables of temporary files and caches name."""

import json
import os
import subprocess
import sys

import pytest

CACHES = (
    *("TMPDIR", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"),
    *("TORCH_EXTENSIONS_DIR", "MPLCONFIGDIR", "CUDA_CACHE_PATH", "CUPY_CACHE_DIR"),
)


@pytest.fixture
def fenced(tmp_path):
    """Run code in a fence whose scratch is tmp_path / "scratch"; return what it prints as JSON."""
    (tmp_path / "scratch").mkdir()
    (tmp_path / "home").mkdir()

    def call(code, **environment):
        words = [sys.executable, "-m", "dpbench.engine.fence", "--", sys.executable, "-c", code]
        given = os.environ | {"DPBENCH_SCRATCH": str(tmp_path / "scratch"), "HOME": str(tmp_path / "home")}
        done = subprocess.run(words, env=given | environment, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    return call


def test_the_variables_of_caches_name_the_folder_that_may_be_written_whatever_the_user_set(fenced, tmp_path):
    user = {name: str(tmp_path / "home") for name in CACHES}
    for given in ({}, user):
        values = fenced("import json, os; print(json.dumps(dict(os.environ)))", **given)
        folders = {values[name] for name in CACHES}
        assert len(folders) == 1
        assert os.path.dirname(folders.pop()) == str(tmp_path / "scratch")


def test_torch_compiles_there_and_reads_downloaded_data_where_they_were(fenced, tmp_path):
    code = """
import json, torch
from torch._inductor.runtime.cache_dir_utils import cache_dir
from torch.utils.cpp_extension import _get_build_directory
print(json.dumps([cache_dir(), _get_build_directory("mine", False), torch.hub.get_dir()]))
"""
    inductor, extension, data = fenced(code)
    assert inductor.startswith(str(tmp_path / "scratch"))
    assert extension.startswith(str(tmp_path / "scratch"))
    assert data == str(tmp_path / "home/.cache/torch/hub")
    assert fenced(code, XDG_CACHE_HOME=str(tmp_path / "mine"))[2] == str(tmp_path / "mine/torch/hub")
