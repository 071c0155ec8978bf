"""The contents of files that are right except for the named change."""

import json
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from dpbench.records.row import SCHEMA
from tests.cli.repositories import git
from tests.records.making import ENVIRONMENT, case, ok

COMMIT = "a" * 40


def encoded(fields: object) -> bytes:
    """Return the fields as JSON. A NaN or an infinity is written as Python writes it."""
    return json.dumps(fields).encode()


def record_line(change: Mapping[str, object]) -> bytes:
    """Return a line of a file of records. Keys of `change` are names, or two names with a dot."""
    record = ok(case(devices="cpu*4"), 0, environment=ENVIRONMENT.model_copy(update={"commit": COMMIT, "dirty": False}))
    fields = record.to_json()
    for name, value in change.items():
        outer, _, inner = name.partition(".")
        if inner:
            fields[outer][inner] = value
        else:
            fields[outer] = value
    return encoded(fields) + b"\n"


def counts_file(schema: object = 1, **change: object) -> bytes:
    fields: dict[str, object] = {
        "format": "dpbench.expected_counts",
        "schema": schema,
        "torch": "2.13.0",
        "python": "3.11",
        "cases": {},
    }
    return encoded(fields | change)


def self_test(**change: object) -> bytes:
    """Return the result of a self-test, written by no gate."""
    fields = {
        "schema": SCHEMA,
        "kind": "self-test",
        "rounds": 2,
        "slower": 1,
        "not_slower": 5,
        "tested": [],
        "began": "2025-01-01T00:00:00+00:00",
        "environment": ENVIRONMENT.model_dump(),
    }
    return encoded(fields | change)


def gate_files(settings: bytes = b"") -> dict[str, bytes]:
    """Return a repository, its working tree, and the settings as ``g.toml``.

    ``main`` has two commits with a wrapper, ``without`` two more without one.
    """
    return {**_repository(), "g.toml": settings}


@cache
def _repository() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        wrapper = Path(__file__).parents[2] / "dpbench" / "parallel"
        for source in wrapper.glob("*.py"):
            target = folder / "dpbench" / "parallel" / source.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
        git(folder, "init", "--quiet", "--template=", "--initial-branch=main")
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "-m", "one")
        git(folder, "commit", "--quiet", "--allow-empty", "-m", "two")
        git(folder, "checkout", "--quiet", "-b", "without")
        git(folder, "rm", "-r", "--quiet", "dpbench")
        git(folder, "commit", "--quiet", "-m", "no wrapper")
        git(folder, "commit", "--quiet", "--allow-empty", "-m", "still none")
        git(folder, "checkout", "--quiet", "main")
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
