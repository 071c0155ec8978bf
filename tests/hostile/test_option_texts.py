"""One rule for the text of every option: spaces around it and a list's items go, control characters are refused."""

from pathlib import Path

import pytest
import typer

from dpbench.cli.command_line import app, load_command
from tests.hostile.attack import assert_unharmed, attack
from tests.hostile.files import gate_files, record_line

PROJECT = ("project", "mlp/tiny", "--machine=4xT4-pcie")
ELASTIC = ("elastic", "--steps=9", "--workload=mlp/tiny")
LISTS = (
    (("compare", "--rounds=1"), "--variants", "naive,tuned"),
    (("compare", "--rounds=1"), "--workloads", "mlp/tiny,mlp/small"),
    (("compare", "--rounds=1"), "--batch", "64,128"),
    (("compare", "--rounds=1"), "--devices", "cpu*2,cpu*4"),
    (("compare", "--rounds=1"), "--modes", "train,infer"),
    (("compare", "--rounds=1"), "--dtypes", "float32,float64"),
    (("counts",), "--variants", "naive,tuned[route=star]"),
    (("counts",), "--workloads", "mlp/tiny,mlp/small"),
    (("counts",), "--batch", "64,128"),
    (("counts",), "--devices", "sim*2,cpu*2"),
    (("trace", "mlp/tiny"), "--variants", "naive,tuned"),
    (PROJECT, "--machine", "4xT4-pcie,8xV100-pcie"),
    (PROJECT, "--variants", "single,tuned"),
    (ELASTIC, "--faults", "kill,oom"),
    (ELASTIC, "--plan", "kill@1:0,oom@2:0"),
    (("gate", "--base=HEAD~1"), "--tiers", "0,1"),
)


def answer_to(words, text):
    return attack((*words[:-1], f"{words[-1]}={text}"), gate_files() if words[0] == "gate" else {})


@pytest.mark.parametrize(("words", "option", "text"), LISTS)
def test_spaces_around_the_items_of_a_list_change_nothing(words, option, text):
    plain, spaced = (answer_to((*words, option), spelling) for spelling in (text, f" {text.replace(',', ' , ')} "))
    assert (spaced.code, f"{option}: " in spaced.err) == (plain.code, False), spaced.err
    assert plain.code != 2, plain.err


@pytest.mark.parametrize(
    ("words", "option", "text", "code"),
    [
        (ELASTIC, "--dtype", "float64", 1),
        (ELASTIC, "--seed", "3", 1),
        ((*PROJECT, "--loader=0"), "--math", "tf32", 2),
        (("export", "r.jsonl"), "--to", "csv", 0),
    ],
)
def test_spaces_around_a_single_value_change_nothing(words, option, text, code):
    answer = attack((*words, f"{option}= {text} "), {"r.jsonl": record_line({})})
    assert (answer.code, f"{option[2:]}: " in answer.err) == (code, False), answer.err


def test_a_path_may_begin_with_a_space_and_have_control_characters():
    answer = attack(("export", "r.jsonl", "--output", " a\n"), {"r.jsonl": record_line({})})
    assert (answer.code, [Path(path).name for path in answer.written]) == (0, [" a\n"]), answer.err


@pytest.mark.parametrize("wrong", ["naive\n", "\tnaive", "naive\x1b[2J", "naive,\r", "\xa0naive"], ids=ascii)
def test_other_white_space_and_control_characters_are_refused(wrong):
    answer = attack(("compare", f"--variants={wrong}"))
    assert_unharmed(answer)
    assert answer.code == 2
    assert "--variants: " in answer.err
    assert "has what cannot be printed; allowed: printable characters" in answer.err


@pytest.mark.parametrize(("words", "option", "text"), LISTS)
def test_a_space_within_an_item_is_refused(words, option, text):
    answer = answer_to((*words, option), f"{text} {text[-1]}")
    assert_unharmed(answer)
    assert answer.code == 2
    assert f"{option[2:]}: " in answer.err
    assert f"{text.split(',')[-1]} {text[-1]}" in answer.err


def texts():
    """Yield each option and argument of each command that takes a text or a number, and a value of its type."""
    for name in typer.main.get_group(app).commands:
        for param in load_command(name).params:
            kind = param.type_descriptor.annotation
            if kind in (str, int, float):
                yield name, param.opts[0], "a" if kind is str else "7"


@pytest.mark.parametrize(("command", "param", "value"), list(texts()))
def test_no_text_of_any_command_has_a_control_character(command, param, value):
    words = [f"{param}={value}\n"] if param.startswith("--") else [f"{value}\n"]
    needed = {"trace": ("mlp/tiny",), "report": ("r.jsonl",), "export": ("r.jsonl",)}.get(command, ())
    answer = attack((command, *(needed if param.startswith("--") else ()), *words))
    assert_unharmed(answer)
    assert answer.code == 2
    assert f"{param}: '{value}\\n' has what cannot be printed" in answer.err
