"""The wrapper and `dpbench.compare` in a notebook: a kernel with its interrupts, its restart and what it keeps."""

import os
import signal
import threading
import uuid
from pathlib import Path

import nbformat
import pytest
from jupyter_core.utils import run_sync
from nbclient import NotebookClient

from tests.processes.conftest import marked_processes, wait_until

ROOT, MARK = Path(__file__).parents[1], "DPBENCH_TEST_MARK"
SET_UP = """
import gc, sys, weakref
import torch, dpbench
from torch import nn
from dpbench.parallel import DataParallel, Policy
from tests.parallel.interrupting import Training, lane_threads, interrupt_at_random
torch.set_num_threads(1)
def make(base=None):
    wrap = lambda new: DataParallel(base or new, ["cpu"] * 4, policy=Policy(dispatch="threads"))
    return Training(wrap)
training = make()
training.backward()
"""
COMPARE = """
inputs, target = torch.randn(8, 4), torch.randint(3, (8,))
def compare(budget):
    return dpbench.compare(nn.Linear(4, 3), (inputs, target), nn.functional.cross_entropy, devices=["cpu"] * 2,
                           variants=["naive"], rounds=2, budget=budget, results=FOLDER)
"""


class Notebook:
    """A notebook with a running kernel. `mark` is in the environment of all its processes."""

    def __init__(self, client: NotebookClient, mark: str) -> None:
        self._client, self.mark = client, mark

    def run(self, source: str, interrupt_when=None) -> list:
        """Run a cell and return its outputs; interrupt the kernel as Jupyter does once `interrupt_when()` is true."""
        cells = self._client.nb.cells
        cells.append(nbformat.v4.new_code_cell(source))
        if interrupt_when is not None:
            threading.Thread(target=self._interrupt, args=(interrupt_when,)).start()
        self._client.execute_cell(cells[-1], len(cells) - 1)
        return cells[-1].outputs

    def fails(self, source: str, interrupt_when=None) -> str:
        """Run a cell that fails, and return the name of the error."""
        return self.run(source, interrupt_when)[-1].ename

    def passes(self, source: str) -> list:
        outputs = self.run(source)
        assert [each for each in outputs if each.output_type == "error"] == []
        return outputs

    def restart(self) -> None:
        run_sync(self._client.km.restart_kernel)(now=True)
        run_sync(self._client.kc.wait_for_ready)(timeout=120)

    def _interrupt(self, when) -> None:
        wait_until(when)
        os.killpg(self._client.km.provisioner.pid, signal.SIGINT)  # as `interrupt_kernel` does


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    mark = uuid.uuid4().hex
    environment = {
        **os.environ,
        MARK: mark,
        "PYTHONPATH": str(ROOT),
        "IPYTHONDIR": str(tmp_path_factory.mktemp("ipython")),
    }
    client = NotebookClient(nbformat.v4.new_notebook(), timeout=None, allow_errors=True)
    with client.setup_kernel(env=environment):
        yield Notebook(client, mark)


@pytest.fixture
def ready(notebook):
    """The notebook after a restart, with a wrapper in training."""
    notebook.restart()
    notebook.passes(SET_UP)
    return notebook


def test_training_goes_on_after_interrupts_and_a_restart(ready, tmp_path):
    ready.passes("assert interrupt_at_random(training, 100) is None")
    begun = tmp_path / "begun"
    cell = f"open({str(begun)!r}, 'w').close()\nwhile True: training.backward()"
    for _ in range(3):
        assert ready.fails(cell, begun.exists) == "KeyboardInterrupt"
        ready.passes("training.goes_on()")
        begun.unlink()
    ready.restart()
    assert ready.fails("training") == "NameError"
    ready.passes(SET_UP + "training.goes_on()")


def test_a_new_wrapper_trains_beside_the_old_one_until_out_is_reset(ready):
    ready.passes("old = weakref.ref(training.wrapper)\ntraining.wrapper")  # the cell's value, which Out keeps
    ready.passes("training = make(training.base)\ntraining.base = training.wrapper.module\ntraining.backward()")
    ready.passes("training.goes_on()\nassert old() is not None")
    ready.passes("old().zero_grad(); training.backward(old()); training.goes_on()")
    ready.passes("%reset -f out\ngc.collect()\nassert old() is None\ntraining.goes_on()")


def test_the_last_traceback_keeps_what_was_interrupted_until_the_next_error(ready, tmp_path):
    begun = tmp_path / "begun"
    cell = f"kept = weakref.ref(training.wrapper)\nopen({str(begun)!r}, 'w').close()\nwhile True: training.backward()"
    assert ready.fails(cell, begun.exists) == "KeyboardInterrupt"
    ready.passes("del training\ngc.collect()\nassert kept() is not None and lane_threads()")
    assert ready.fails("1 / 0") == "ZeroDivisionError"
    ready.passes(
        "gc.collect()\nassert kept() is None\nfor each in lane_threads(): each.join(60)\nassert not lane_threads()"
    )


def test_a_comparison_shows_one_line_and_a_table_and_an_interrupt_leaves_no_process(ready, tmp_path):
    alone = len(marked_processes(ready.mark))
    ready.passes(COMPARE.replace("FOLDER", repr(str(tmp_path))))
    is_measuring = lambda: any(path.stat().st_size for path in tmp_path.rglob("*.jsonl"))  # noqa: E731
    assert ready.fails("compare('70s')", is_measuring) == "KeyboardInterrupt"
    wait_until(lambda: len(marked_processes(ready.mark)) == alone)
    outputs = ready.passes("compare('4s')")
    assert [each.output_type for each in outputs] == ["display_data", "execute_result"]
    assert outputs[0].data == {"text/plain": ""}
    assert outputs[1].data["text/html"].startswith("<pre>")
    assert "naive" in outputs[1].data["text/html"]
    assert len(marked_processes(ready.mark)) == alone
