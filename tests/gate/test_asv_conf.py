"""Where asv's configuration is, and the build that it and this Python ask for."""

import sys

import pytest

from dpbench.gate import sides
from dpbench.measure.borrowed.asv_conf import configurations, repo_subdir, split_name
from tests.gate.foreign_suites import counted, listed, write_suite

DEEP = '{"version": 1, "project": "toy", "repo": "../..", "benchmark_dir": "%s"}'


def test_configurations_in_deep_folders_are_read_and_one_can_be_named(tmp_path):
    """Names of benchmarks then begin with the configuration's path."""
    commit = write_suite(
        tmp_path / "head",
        {
            "a/b/asv.conf.json": DEEP % "usual",
            "a/b/c/asv.conf.json": DEEP % "none",
            "a/b/asv-pr.conf.json": DEEP % "pr",
            "a/b/usual/b.py": "def time_usual(): pass\n",
            "a/b/pr/b.py": "class Pr:\n    params = ['x.json:y']\n    def track_pr(self, text): return 3\n",
        },
    )
    (commit / "asv.conf.json").unlink()
    found = listed(commit, "asv")
    assert [one.name for one in found.meant] == ["b.time_usual"]
    assert found.notes == ("measured is a/b/asv.conf.json, not a/b/c/asv.conf.json; --asv PATH names another one",)
    name = "a/b/asv-pr.conf.json:b.Pr.track_pr('x.json:y')"
    for text in ("a/b/asv-pr.conf.json", "a/b/asv-pr.conf.json:^b.Pr"):
        assert [(one.name, one.refused) for one in listed(commit, "asv", text).meant] == [(name, None)]
    assert counted(commit, f"asv {name}")[0].counts.value == 3
    assert listed(commit, "asv", "none.json").problems == (
        "no none.json; allowed: asv's configuration in a folder of the repository",
    )


def test_a_comment_is_no_repo_subdir(tmp_path):
    conf = tmp_path / "x/asv.conf.jsonc"
    conf.parent.mkdir()
    conf.write_text('{\n    // "repo_subdir": "no",\n "a": 1, "repo_subdir": "python"}')
    assert configurations(tmp_path) == [conf]
    assert repo_subdir(tmp_path) == "python"
    conf.write_text('{\n    // "repo_subdir": "no",\n}')
    assert repo_subdir(tmp_path) == ""
    assert split_name("time_a('b.json')") == (None, "time_a('b.json')")


@pytest.mark.parametrize(
    ("has_pip", "has_uv", "runs"), [(1, 1, "{} -m pip"), (0, 1, "UV_PYTHON={} uv pip"), (0, 0, "{} -m pip")]
)
def test_a_build_uses_this_pythons_pip_or_uvs_and_no_shim_on_the_path(monkeypatch, has_pip, has_uv, runs):
    monkeypatch.setattr(sides, "find_spec", lambda _: has_pip or None)
    monkeypatch.setattr(sides.shutil, "which", lambda _: has_uv or None)
    pip = runs.format(sys.executable)
    assert sides.with_pip("pip install .") == f"{pip} install ."
    assert (
        sides.with_pip("make x && pip3 install . ; python -m pip list")
        == f"make x && {pip} install . ; python -m pip list"
    )
