"""Input drawn by hypothesis, from texts that are hostile to a parser, a terminal, a path or git.

The seed is that of `tests/sampling.py`. `make test-all` draws many more.
"""

import json
from typing import Any

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests import sampling
from tests.hostile.attack import assert_unharmed, attack
from tests.hostile.files import (
    counts_file,
    gate_files,
    record_line,
    self_test,
)

FRAGMENTS = (
    *("\x1b[31m", "\x1b]0;t\x07", "\x9b2J", "\r", "\n", "\t", "\0", "\u202e", "\u2028", "\udc80", "٤", "é", "💥"),
    *("--output=x", "-", "../", "/", "/dev/null", "~", "~root", "*", "?", "$(id)", "`", "{0}", "%s", "[/red]", "[b]"),
    *(
        "9" * 400,
        "9" * 5000,
        "-1",
        "0",
        "1e309",
        "nan",
        "inf",
        "0x10",
        "1_000",
        "true",
        "null",
        "",
        " ",
        ",",
        ",,",
        ":",
    ),
    *("[", "]", "{", "}", '"', "'", "\\", "=", ".", "#", "HEAD", "HEAD~1", "@{1}", "a" * 300, "x" * 5000),
)
TEXTS = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=5), min_size=1, max_size=4).map("".join)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.sampled_from([10**30, -(10**400), 2**63]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
OPTIONS = {
    "compare": "variants workloads batch devices modes dtypes data rounds budget timeout threads seed results",
    "sweep": "retry results",
    "counts": "variants workloads batch devices events expected",
    "asv-machine": "machine machine-file",
    "export": "output",
    "gate": "base head tiers budget settings results comment junit",
}


def words_of(text: str) -> st.SearchStrategy[str]:
    """Return the words of the text, drawn one at a time."""
    return st.sampled_from(text.split())


def drawn(few: int) -> Any:
    """Return the decorators of a test: `few` examples, or forty times as many if the run leaves nothing out."""

    def decorate(test: Any) -> Any:
        count = few * 40 if sampling.runs_everything() else few
        quiet = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
        options = settings(max_examples=count, deadline=None, database=None, suppress_health_check=quiet)
        return seed(sampling.seed())(options(test))

    return decorate


@drawn(80)
@given(st.sampled_from(sorted(OPTIONS)), st.data())
def test_options(command, data):
    names = data.draw(st.lists(st.sampled_from(OPTIONS[command].split()), min_size=1, max_size=3, unique=True))
    words = [f"--{name}={data.draw(TEXTS)}".replace("\0", "") for name in names]
    arguments = {"sweep": 1, "export": 1}.get(command, 0)
    words += [data.draw(TEXTS).replace("\0", "") for _ in range(arguments)]
    assert_unharmed(attack((command, *(word for word in words if "dev/null" not in word))))


@drawn(60)
@given(words_of("variants workloads batch devices modes rounds budget timeout seed reference x"), VALUES)
def test_sweep_files(key, value):
    assert_unharmed(attack(("sweep", "s.toml"), {"s.toml": toml(key, value)}))


@drawn(40)
@given(TEXTS.map(lambda text: text.encode(errors="surrogateescape")) | st.binary(max_size=50))
def test_files_of_any_bytes(content):
    assert_unharmed(attack(("sweep", "s.toml"), {"s.toml": content}))
    files = {"r.jsonl": content + b"\n"}
    assert_unharmed(attack(("export", "r.jsonl"), files))
    assert_unharmed(attack(("asv-machine", "--machine=m", "--machine-file=r.jsonl"), files))


@drawn(25)
@given(words_of("alarm_rate thresholds benchmark accepted x"), VALUES)
def test_gate_settings(key, value):
    words = ("gate", "--base=HEAD~1", "--tiers=0", "--settings=g.toml")
    assert_unharmed(attack(words, gate_files(toml(key, value))))


@drawn(60)
@given(
    words_of("run round started_at outcome reason samples_s schema case.workload environment.commit")
    | words_of("environment.python environment.torch metrics.stopped_by case.devices x"),
    VALUES,
)
def test_records(name, value):
    assert_unharmed(attack(("export", "r.jsonl"), {"r.jsonl": record_line({name: value})}))


@drawn(40)
@given(words_of("format schema torch python cases x"), VALUES)
def test_expected_counts(name, value):
    assert_unharmed(
        attack(("counts", "--check", "--expected=e"), {"e/torch-2.13.0-py3.11.json": counts_file(**{name: value})})
    )


@drawn(15)
@given(words_of("tested alarm_rate budget_s began ended environment x"), VALUES)
def test_self_test_results(name, value):
    files = {**gate_files(), "results/gate/self-test-x.json": self_test(**{name: value})}
    assert_unharmed(attack(("gate", "--base=HEAD~1", "--tiers=1"), files))


def toml(key: str, value: object) -> bytes:
    """Return a TOML file with one key."""
    return f"{key} = {_toml(value)}\n".encode(errors="surrogateescape")


def _toml(value: object) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{_toml(str(key))} = {_toml(each)}" for key, each in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_toml, value)) + "]"
        case None:
            return '""'
        case _:
            return json.dumps(value).lower() if isinstance(value, float) else json.dumps(value)
