"""Where a gate's judgement goes: standard output, files, GitHub's annotations. A gate that fails writes one too."""

import json
import sys
import xml.etree.ElementTree as ET

import pytest

from dpbench.cli import gate as cli_gate
from dpbench.cli import main
from dpbench.errors import GateError
from dpbench.gate.run import UnkeptError
from dpbench.records.store import StoreError
from tests.report.gate.making_gate import BROKEN, PASS, SLOWER

EXPECTED = {"pass": PASS, "slower": SLOWER}


@pytest.fixture
def call(monkeypatch, capfd, tmp_path):
    """Call `gate` with these options, while `run_gate` returns, or raises, `outcome`."""

    def called(outcome, *words):
        def run_gate(*_, **__):
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome

        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(cli_gate, "run_gate", run_gate)
        monkeypatch.setattr(cli_gate.signal, "signal", lambda *_: None)
        monkeypatch.setattr(sys, "argv", ["dpbench", "gate", "--base", "main", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capfd.readouterr()

    return called


@pytest.mark.parametrize(("verdict", "code"), [("pass", 0), ("slower", 1)])
def test_the_exit_code_is_the_verdict(call, verdict, code):
    got, out, _ = call(EXPECTED[verdict])
    assert got == code
    assert out.lower().startswith(verdict)


def test_json_stands_alone_on_standard_output_beside_annotations(call):
    code, out, err = call(SLOWER, "--json", "--github")
    assert (code, json.loads(out)["verdict"]) == (1, "slower")
    assert "::error " in err


def test_files_and_the_summary_of_a_step(call, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    (tmp_path / "summary.md").write_text("of an earlier step\n")
    call(SLOWER, "--comment", "gate.md", "--junit", "gate.xml", "--github")
    markdown = (tmp_path / "gate.md").read_text()
    assert (tmp_path / "summary.md").read_text() == f"of an earlier step\n{markdown}"
    assert ET.parse(tmp_path / "gate.xml").getroot().get("failures") != "0"


def test_a_full_disk_is_named_by_the_file_that_it_holds(call, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "/dev/full")
    code, _, err = call(SLOWER, "--github")
    assert code == 3
    assert "/dev/full: cannot be written: No space left on device" in err


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_verdict_is_printed_before_the_line_on_a_history_or_file_that_cannot_be_written(call, monkeypatch, words):
    code, out, err = call(UnkeptError("history.jsonl: cannot be written: No space left on device", SLOWER), *words)
    assert code == 3
    assert json.loads(out)["verdict"] == "slower" if words else out.startswith("Slower")
    assert err == "dpbench: history.jsonl: cannot be written: No space left on device\n"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "/dev/full")
    assert call(SLOWER, "--github", *words)[:2] == (3, out)


def test_a_broken_gate_is_reported_in_every_form_and_in_one_line(call, tmp_path):
    code, out, err = call(GateError("no commit"), "--json", "--comment", "gate.md", "--junit", "gate.xml", "--github")
    shown = json.loads(out)
    assert (code, shown["verdict"], shown["exit_code"], shown["why"]) == (3, "broken", 3, "no commit")
    assert "dpbench: no commit" in err.splitlines()
    assert "no commit" in (tmp_path / "gate.md").read_text()
    assert ET.parse(tmp_path / "gate.xml").getroot().get("errors") == "1"
    assert BROKEN.verdict == shown["verdict"]


def test_an_unforeseen_error_is_broken_too_because_1_means_slower(call):
    code, out, err = call(ZeroDivisionError("oh"))
    assert (code, out) == (3, "")
    assert err.startswith("dpbench: ZeroDivisionError: oh; this is an error in dpbench; please report it")
    assert err.count("\n") == 1
    code, _, err = call(ZeroDivisionError("oh"), "--debug")
    assert (code, err.splitlines()[0]) == (3, "Traceback (most recent call last):")


def test_wrong_input_that_another_room_raises_is_wrong_input(call):
    code, out, err = call(StoreError("x.jsonl: cannot be read"))
    assert (code, out, err) == (2, "", "dpbench: x.jsonl: cannot be read\n")


def test_an_interrupt_is_no_verdict(call):
    code, _, err = call(KeyboardInterrupt())
    assert (code, err) == (130, "dpbench: interrupted; what was recorded so far is kept\n")


@pytest.mark.parametrize("debug", [None, "option", "variable"])
def test_an_unforeseen_error_of_another_command(monkeypatch, capfd, debug):
    def fail():
        raise ZeroDivisionError("\x1b[31mred\nline")

    monkeypatch.setattr(sys, "argv", ["dpbench", "list", *(["--debug"] if debug == "option" else [])])
    monkeypatch.setenv("DPBENCH_DEBUG", "1" if debug == "variable" else "0")
    monkeypatch.setattr("dpbench.cli.list_names.vocabulary_text", fail)
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capfd.readouterr()
    assert (ended.value.code, out) == (3, "")
    last = err.splitlines()[-1]
    assert last.startswith("dpbench: ZeroDivisionError: [31mred line; this is an error in dpbench; please report it")
    assert "\x1b" not in err
    assert ("Traceback" in err) == (debug is not None)
    assert debug or err.count("\n") == 1
