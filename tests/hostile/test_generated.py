"""One property: whatever is in an option or a file, a command is unharmed. hypothesis draws the input.

Texts are hostile to a parser, a terminal, a path or git. The seed is that of `tests/sampling.py`. `make test-all`
draws many more.
"""

import json
from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests import sampling
from tests.hostile.attack import Files, assert_unharmed, attack
from tests.hostile.files import counts_file, gate_files, record_line, self_test
from tests.hostile.numbers import changed_numbers

FRAGMENTS = (
    *("\x1b[31m", "\x1b]0;t\x07", "\x9b2J", "\r", "\n", "\t", "\0", "\u202e", "\u2028", "\udc80", "٤", "é", "💥"),
    *("--output=x", "-", "../", "/", "/dev/null", "~", "~root", "*", "?", "$(id)", "`", "{0}", "%s", "[/red]", "[b]"),
    *("9" * 400, "9" * 5000, "-1", "0", "1e309", "nan", "inf", "0x10", "1_000", "true", "null", "", " ", ",", ",,"),
    *(":", "[", "]", "{", "}", '"', "'", "\\", "=", ".", "#", "HEAD", "HEAD~1", "@{1}", "a" * 300, "x" * 5000),
)
TEXTS = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=5), min_size=1, max_size=4).map("".join)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.sampled_from([10**30, -(10**400), 2**63]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
BYTES = TEXTS.map(lambda text: text.encode(errors="surrogateescape")) | st.binary(max_size=50)
OPTIONS = {
    "compare": "variants workloads batch devices modes dtypes data rounds budget timeout threads seed results",
    "sweep": "retry results",
    "counts": "variants workloads batch devices events expected",
    "asv-machine": "machine machine-file",
    "export": "output",
    "gate": "base head tiers budget settings results comment junit",
}
GATE = ("gate", "--base=HEAD~1")
FIELDS = {
    "sweep": "variants workloads batch devices modes rounds budget timeout seed reference x",
    "settings": "alarm_rate thresholds benchmark accepted x",
    "record": "run round started_at outcome reason samples_s schema case.workload environment.commit "
    "environment.python environment.torch metrics.stopped_by case.devices x",
    "counts": "format schema torch python cases x",
    "self-test": "schema kind rounds slower not_slower began environment",
}
Attack = tuple[tuple[str, ...], Files]


@st.composite
def options(draw: st.DrawFn) -> Attack:
    """Draw a command with up to three options."""
    command = draw(st.sampled_from(sorted(OPTIONS)))
    names = draw(st.lists(st.sampled_from(OPTIONS[command].split()), min_size=1, max_size=3, unique=True))
    words = [f"--{name}={draw(TEXTS)}" for name in names]
    words += [draw(TEXTS) for _ in range(command in {"sweep", "export"})]
    return (command, *(word.replace("\0", "") for word in words if "dev/null" not in word)), {}


def field(kind: str, name: str, value: object) -> Attack:
    """Return a command that reads a file of a kind, which is right but for one field."""
    match kind:
        case "sweep":
            return ("sweep", "s.toml"), {"s.toml": toml(name, value)}
        case "settings":
            return (*GATE, "--tiers=0", "--settings=g.toml"), gate_files(toml(name, value))
        case "record":
            return ("export", "r.jsonl"), {"r.jsonl": record_line({name: value})}
        case "counts":
            expected = {"e/torch-2.13.0-py3.11.json": counts_file(**{name: value})}
            return ("counts", "--check", "--expected=e"), expected
        case _:
            return (*GATE, "--tiers=1"), {**gate_files(), "results/gate/self-test-x.json": self_test(**{name: value})}


def fields(kind: str) -> st.SearchStrategy[Attack]:
    return st.builds(field, st.just(kind), st.sampled_from(FIELDS[kind].split()), VALUES)


def any_bytes(*words: str) -> st.SearchStrategy[Attack]:
    return BYTES.map(lambda content: (words, {"file": content + b"\n"}))


ATTACKS: Mapping[str, tuple[int, st.SearchStrategy[Attack]]] = {
    "options": (80, options()),
    "a field of a sweep": (60, fields("sweep")),
    "a field of settings": (25, fields("settings")),
    "a field of a record": (60, fields("record")),
    "a field of expected counts": (40, fields("counts")),
    "a field of a self-test": (15, fields("self-test")),
    "bytes as a sweep": (40, any_bytes("sweep", "file")),
    "bytes as records": (40, any_bytes("export", "file")),
    "bytes as a machine file": (40, any_bytes("asv-machine", "--machine=m", "--machine-file=file")),
    "a number of a file": (200, st.sampled_from(list(changed_numbers())).map(lambda change: change())),
}
"""By name, how many attacks `make test` draws."""


@pytest.mark.parametrize("name", ATTACKS)
def test_no_input_does_harm(name):
    few, attacks = ATTACKS[name]
    count = few * 40 if sampling.runs_everything() else few
    quiet = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

    @seed(sampling.seed())
    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=quiet)
    @given(attacks)
    def property_(drawn: Attack) -> None:
        answer = attack(*drawn)
        assert_unharmed(answer)
        assert "this is an error in dpbench" not in answer.err, answer.err

    property_()


def toml(key: str, value: object) -> bytes:
    """Return a TOML file with one key."""
    return f"{key} = {_toml(value)}\n".encode(errors="surrogateescape")


def _toml(value: object) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{_toml(str(key))} = {_toml(inner)}" for key, inner in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_toml, value)) + "]"
        case None:
            return '""'
        case _:
            return json.dumps(value).lower() if isinstance(value, float) else json.dumps(value)
