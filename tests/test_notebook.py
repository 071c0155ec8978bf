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

from tests.engine.conftest import marked_processes, wait_until

ROOT = Path(__file__).parents[1]
SET_UP = """
import gc, weakref
import torch, dpbench
from torch import nn
from dpbench.parallel import DataParallel, Policy
from tests.parallel.interrupting import Training, interrupt_at_random, lane_threads
torch.set_num_threads(1)
training = Training(lambda base: DataParallel(base, ["cpu"] * 4, policy=Policy(dispatch="threads")))
training.goes_on()
"""
COMPARE = """
batch = torch.randn(8, 4), torch.randint(3, (8,))
dpbench.compare(nn.Linear(4, 3), batch, nn.functional.cross_entropy, devices=["cpu"] * 2, variants=["naive"],
                rounds=2, budget="4s", results="FOLDER")
"""


class Notebook:
    def __init__(self, client, mark):
        self._client, self.mark = client, mark

    def run(self, source, interrupt_when=None):
        """Run a cell and return its outputs; interrupt the kernel as Jupyter does once `interrupt_when()` is true."""
        cell = nbformat.v4.new_code_cell(source)
        self._client.nb.cells = [cell]
        if interrupt_when is not None:
            threading.Thread(target=self._interrupt, args=(interrupt_when,)).start()
        self._client.execute_cell(cell, 0)
        return cell.outputs

    def passes(self, source):
        outputs = self.run(source)
        assert [output for output in outputs if output.output_type == "error"] == []
        return outputs

    def restart(self):
        run_sync(self._client.km.restart_kernel)(now=True)
        run_sync(self._client.kc.wait_for_ready)(timeout=120)

    def _interrupt(self, when):
        wait_until(when)
        os.killpg(self._client.km.provisioner.pid, signal.SIGINT)  # as `interrupt_kernel` does

    def train_interrupted(self, folder):
        begun = folder / "begun"
        cell = f"open({str(begun)!r}, 'w').close()\nwhile True: training.backward()"
        assert self.run(cell, begun.exists)[-1].ename == "KeyboardInterrupt"
        begun.unlink()

    def processes(self):
        return len(marked_processes(self.mark))


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    mark, home = uuid.uuid4().hex, str(tmp_path_factory.mktemp("home"))
    environment = {**os.environ, "DPBENCH_TEST_MARK": mark, "PYTHONPATH": str(ROOT), "IPYTHONDIR": home}
    client = NotebookClient(nbformat.v4.new_notebook(), timeout=None, allow_errors=True)
    with client.setup_kernel(env=environment):
        yield Notebook(client, mark)


@pytest.fixture
def notebook(kernel):
    """A notebook after a restart of its kernel, with a wrapper in training."""
    kernel.restart()
    assert kernel.run("training")[-1].ename == "NameError"
    kernel.passes(SET_UP)
    return kernel


def test_training_goes_on_after_interrupts(notebook, tmp_path):
    notebook.passes("interrupt_at_random(training, 100)")
    for _ in range(3):
        notebook.train_interrupted(tmp_path)
        notebook.passes("training.goes_on()")


def test_out_keeps_a_wrapper_and_the_last_traceback_the_interrupted_one(notebook, tmp_path):
    for line_end, is_kept in ((";", False), ("", True)):
        notebook.passes(f"old = weakref.ref(training.wrapper)\ntraining.wrapper{line_end}")
        notebook.passes(f"training.wrap_anew()\ngc.collect()\nassert (old() is not None) is {is_kept}")
    notebook.passes("training.goes_on()\ntraining.backward(old())\ntraining.goes_on()")  # two wrappers, one module
    notebook.passes("kept = weakref.ref(training.wrapper)\nold()._dispatcher = None")  # its threads end
    notebook.train_interrupted(tmp_path)
    notebook.passes("del training\ngc.collect()\nassert kept() is not None and lane_threads()")
    assert notebook.run("1 / 0")[-1].ename == "ZeroDivisionError"
    notebook.passes("gc.collect()\nassert kept() is None\nfor thread in lane_threads(): thread.join(60)")
    notebook.passes("assert not lane_threads()")


def test_a_comparison_shows_a_bar_and_a_table_and_an_interrupt_leaves_no_process(notebook, tmp_path):
    compare, alone = COMPARE.replace("FOLDER", str(tmp_path)), notebook.processes()

    def is_measuring():
        return any(path.stat().st_size for path in tmp_path.rglob("*.jsonl"))

    assert notebook.run(compare, is_measuring)[-1].ename == "KeyboardInterrupt"
    assert notebook.processes() == alone
    bar, *notes, result = notebook.passes(compare)
    assert "<progress" in bar.data["text/html"]
    assert {note.data["text/plain"][:12] for note in notes} <= {"budget: 4 s "}  # before and after a busy run
    assert "naive" in result.data["text/html"]
    assert notebook.processes() == alone
