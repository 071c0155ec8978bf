"""A torch newer than the tested ones runs if the self-check passes; it is checked once."""

import subprocess
from types import SimpleNamespace

import pytest
import torch

from dpbench.cases.case import Case
from dpbench.engine.messages import CountJob, CountRecords
from dpbench.jobs import count_child
from dpbench.jobs.count import run_jobs
from dpbench.simulator import simulate, torch_versions
from dpbench.simulator.torch_versions import note_on, self_check, why_unsupported
from tests.fakes import ended
from tests.simulated import needs_simulator

NEWER = "9.9.0+cpu"
NOTE = "torch 9.9.0+cpu is newer than the simulator was tested with (2.14); its self-check passes"


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """The folder of what has passed; the test's process forgets it too."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    self_check.cache_clear()
    yield tmp_path / "dpbench" / "simulator"
    self_check.cache_clear()


def answer(monkeypatch, **done):
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(**done))


@needs_simulator
def test_a_newer_torch_that_passes_runs_and_is_checked_once(monkeypatch, cache):
    assert why_unsupported(NEWER) is None
    assert [path.name.partition("-dpbench")[0] for path in cache.iterdir()] == [f"torch-{NEWER}"]
    self_check.cache_clear()
    monkeypatch.delattr(subprocess, "run")
    assert why_unsupported(NEWER) is None
    assert note_on(NEWER) == NOTE


@needs_simulator
def test_a_newer_torch_with_other_internals_is_refused_with_what_failed(monkeypatch, cache, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import torch\ndel torch.autograd._engine_run_backward\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(torch, "__version__", NEWER)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    words = "this is 9.9.0.cpu, with which its self-check fails: AttributeError: .*_engine_run_backward.*; allowed:"
    with pytest.raises(RuntimeError, match=words):
        simulate(2)
    assert note_on(NEWER) is None
    assert not cache.exists()


def test_a_check_that_ends_early_is_a_failed_one(monkeypatch):
    monkeypatch.setattr(torch_versions, "_CHECK", "dpbench.no_such_module")
    assert "No module named dpbench.no_such_module" in why_unsupported(NEWER)


def test_a_cache_that_cannot_be_written_is_no_error(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/1/nowhere")
    answer(monkeypatch, stdout="\n")
    assert why_unsupported(NEWER) is None


@pytest.mark.parametrize("version", ["2.9.1", "2.13.0", "2.14.1+cpu"])
def test_older_and_tested_releases_are_not_checked(monkeypatch, version):
    monkeypatch.delattr(subprocess, "run")
    assert (why_unsupported(version) is None) == (version != "2.9.1")
    assert note_on(version) is None


def test_the_user_is_told_once_in_a_process(monkeypatch, capsys):
    answer(monkeypatch, stdout="\n")
    monkeypatch.setattr(torch, "__version__", NEWER)
    assert count_child._note_on_torch() == NOTE
    job = CountJob(case=Case(variant="naive", workload="mlp/tiny", batch=8, devices=("sim:0",), threads=1))
    line = CountRecords(records=(), note="a note").model_dump_json().encode()
    for _ in range(2):
        run_jobs([job], launch=lambda *_: ended(record=line))
    assert capsys.readouterr().err == "dpbench: a note\n"
