"""How the probe asks its questions. cuda_rehearsal.py lets the CUDA stand-in answer them."""

import faulthandler
import json
import os
import signal
import time

import pytest
import torch

from benchmarks.instruments import gpu_probe
from benchmarks.instruments.gpu_probe import QUESTIONS, main


def answers():
    return {"launch_us": 1.5}


def fails():
    raise ValueError("no event\nin this torch")


def crashes():
    faulthandler.disable()  # pytest's, whose traceback would look like a fault of the run
    os.kill(os.getpid(), signal.SIGSEGV)


def hangs():
    time.sleep(60)


def answers_later():
    return {"tries": 5}


@pytest.mark.timeout(0)  # else a question inherits the handler of its alarm
def test_a_question_that_fails_crashes_or_hangs_does_not_stop_the_others(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu_probe, "LIMIT_S", 2)
    path = tmp_path / "probe.json"
    assert main(path, (answers, fails, crashes, hangs, answers_later)) == 1
    written = json.loads(path.read_text())["answers"]
    assert (written["answers"], written["answers_later"]) == ({"launch_us": 1.5}, {"tries": 5})
    assert written["fails"] == "ValueError: no event"
    assert written["crashes"].startswith("BrokenProcessPool: ")
    assert written["hangs"].startswith("BrokenProcessPool: ")
    printed = capsys.readouterr().out.splitlines()
    assert (printed[0], printed[1]) == ('answers {"launch_us": 1.5}', 'fails "ValueError: no event"')
    assert printed[-1] == "2 of 5 questions have an answer fails crashes hangs"


def test_with_an_answer_to_each_question_the_exit_code_is_0(tmp_path):
    assert main(tmp_path / "probe.json", (answers, answers_later)) == 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_nothing_is_asked(tmp_path, capsys):
    assert main(tmp_path / "probe.json") == 77
    assert not (tmp_path / "probe.json").exists()
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_a_refused_capture_is_the_last_question():
    assert (QUESTIONS[0].__name__, QUESTIONS[-1].__name__) == ("machine", "refusal")
