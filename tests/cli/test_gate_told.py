"""Where a gate's answer goes: standard output, files, a runner of GitHub's; and what is told of one that broke."""

import json
import sys
import xml.etree.ElementTree as ET

import pytest

from dpbench import cli_gate
from dpbench.cli import main
from dpbench.errors import GateError
from tests.report.gate.making_gate import BROKEN, PASS, SLOWER

EXPECTED = {"pass": PASS, "slower": SLOWER}


@pytest.fixture
def call(monkeypatch, capfd, tmp_path):
    """`gate` with these options, where measuring gives, or raises, `found`."""

    def called(found, *words):
        def conduct(*_, **__):
            if isinstance(found, Exception):
                raise found
            return found

        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(cli_gate, "conduct", conduct)
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
    call(SLOWER, "--markdown", "gate.md", "--junit", "gate.xml", "--github")
    markdown = (tmp_path / "gate.md").read_text()
    assert (tmp_path / "summary.md").read_text() == f"of an earlier step\n{markdown}"
    assert ET.parse(tmp_path / "gate.xml").getroot().get("failures") != "0"


def test_a_gate_that_broke_is_told_in_every_form_and_in_one_line(call, tmp_path):
    code, out, err = call(GateError("no commit"), "--json", "--markdown", "gate.md", "--junit", "gate.xml", "--github")
    told = json.loads(out)
    assert (code, told["verdict"], told["exit_code"], told["why"]) == (3, "broken", 3, "no commit")
    assert "dpbench: no commit" in err.splitlines()
    assert "no commit" in (tmp_path / "gate.md").read_text()
    assert ET.parse(tmp_path / "gate.xml").getroot().get("errors") == "1"
    assert BROKEN.verdict == told["verdict"]


def test_what_nobody_foresaw_is_broken_too_as_1_would_say_slower(call):
    code, out, err = call(ZeroDivisionError("oh"))
    assert (code, out) == (3, "")
    assert err.splitlines()[-1] == "dpbench: the gate itself failed: ZeroDivisionError: oh"
    assert "Traceback" in err


def test_of_other_commands_it_is_still_raised(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["dpbench", "list"])
    monkeypatch.setattr("dpbench.cli.ask_machine", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main()
