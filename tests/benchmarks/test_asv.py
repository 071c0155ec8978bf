"""The real asv over a temporary history with a slowdown and a commit without the wrapper."""

import json
import math
import subprocess
import sys
from itertools import product

import pytest

from tests.benchmarks.conftest import ROOT

STEP_TIME = "step_time.StepTime.track_step_time"
POINT = ("'tuned'", "'mlp/small'", "64", "2")
pytestmark = [pytest.mark.timeout(600), pytest.mark.exhaustive]


def columns(asv, commit):
    """Return the columns of a commit's step time at `POINT`, by name."""
    (path,) = asv.folder.glob(f"results/asv/here/{asv.commits[commit][:8]}-dpbench-shared-*.json")
    content = json.loads(path.read_text())
    row = dict(zip(content["result_columns"], content["results"][STEP_TIME], strict=False))
    place = list(product(*row["params"])).index(POINT)
    return {name: row[name][place] for name in ("result", "samples", "stats_ci_99_a", "stats_ci_99_b")}


@pytest.fixture(scope="module")
def published(asv):
    """Return the folder of asv's pages."""
    asv.call("publish", "--no-pull")
    return asv.folder / ".asv/html"


def test_continuous_finds_the_slowdown(asv):
    output = asv.outputs["continuous"]
    (line,) = [line for line in output.splitlines() if line.startswith("| +")]
    assert "track_step_time('tuned', 'mlp/small', 64, 2)" in line
    assert "PERFORMANCE DECREASED" in output


def test_samples_are_kept_for_asvs_own_statistics(asv):
    fast, slow = columns(asv, "fast"), columns(asv, "slow")
    assert len(fast["samples"]) > 5
    assert fast["stats_ci_99_a"] <= fast["result"] <= fast["stats_ci_99_b"]
    assert min(slow["samples"]) > 0.3


def test_a_commit_without_the_wrapper_is_skipped_not_failed(asv):
    (path,) = asv.folder.glob(f"results/asv/here/{asv.commits['none'][:8]}-*.json")
    content = json.loads(path.read_text())
    assert all(math.isnan(value) for value in content["results"][STEP_TIME][0])
    assert (
        "this commit lacks what the benchmark needs: ModuleNotFoundError: No module named 'dpbench.parallel'"
        in (asv.outputs["run"])
    )


def test_the_wrapper_is_the_commits_and_the_rest_the_working_trees(asv):
    (python,) = asv.folder.glob(".asv/env/*/bin/python")
    code = (
        "import dpbench.measure, dpbench.parallel, dpbench.parallel.module, torch;"
        "print(dpbench.measure.__file__, dpbench.parallel.__file__, dpbench.parallel.module.__file__, torch.__file__)"
    )
    done = subprocess.run([python, "-c", code], cwd="/", capture_output=True, text=True, check=True)
    measure, wrapper, module, torch = done.stdout.split()
    overlay = python.parents[1] / "lib"
    assert measure == str(asv.folder / "dpbench/measure/__init__.py")
    assert wrapper.startswith(str(overlay))
    assert module.startswith(str(overlay))
    assert not torch.startswith(str(asv.folder))


def test_the_slowdown_is_among_the_published_regressions(asv, published):
    listed = json.loads((published / "regressions.json").read_text())["regressions"]
    (injected,) = [entry for entry in listed if entry[0] == f"{STEP_TIME}('tuned', 'mlp/small', 64, 2)"]
    *_, last_s, best_s, jumps = injected
    assert last_s > best_s
    revisions = json.loads((published / "index.json").read_text())["revision_to_hash"]
    # On a busy machine asv may find a step at "slow still" too, but never one of this size.
    large = [revisions[str(revision)] for _, revision, before_s, after_s in jumps if after_s > 2 * before_s]
    assert large == [asv.commits["slow"]]


def test_facts_of_the_machine_are_selectors(published):
    params = json.loads((published / "index.json").read_text())["params"]
    assert {"gpu", "num_gpu", "driver", "nccl", "torch"} <= set(params)


def test_every_benchmark_has_a_version_and_a_unit_for_which_lower_is_better(asv):
    benchmarks = json.loads((asv.folder / "results/asv/benchmarks.json").read_text())
    del benchmarks["version"]
    assert all(benchmark["version"].isdigit() for benchmark in benchmarks.values())  # asv's own is a hash of the source
    assert {benchmark["unit"] for benchmark in benchmarks.values()} == {"seconds", "bytes", "count", "joules"}
    assert STEP_TIME in benchmarks
    assert not [name for name in benchmarks if "._" in name]


def test_importing_the_suite_loads_neither_torch_nor_nvml():
    code = (
        "import sys, pkgutil, importlib; sys.path.insert(0, 'benchmarks'); import asv_suite;"
        "[importlib.import_module(f'asv_suite.{m.name}') for m in pkgutil.iter_modules(asv_suite.__path__)];"
        "assert not {'torch', 'pytest', 'pynvml'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
