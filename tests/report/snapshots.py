"""Snapshots: what a command prints, in files that a reviewer reads. DPBENCH_SNAPSHOTS=write rewrites them."""

import json
import os
from collections.abc import Mapping
from io import StringIO
from pathlib import Path

from rich.console import Console

FOLDER = Path(__file__).with_suffix("")


def assert_as_before(name, value):
    """Compare a text, or the JSON of anything else, with the file of this name."""
    text = value if isinstance(value, str) else _json(value)
    path = FOLDER / name
    if os.environ.get("DPBENCH_SNAPSHOTS") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, errors="backslashreplace")
    before = path.read_text() if path.exists() else "no such snapshot; DPBENCH_SNAPSHOTS=write makes it"
    assert text.encode(errors="backslashreplace").decode() == before


def _json(fields):
    """Return a line for each entry of a list at the top, and one for each other field."""
    lines = []
    for key, value in fields.items():
        entries = value if isinstance(value, list) else [value]
        lines += [f"{key}: {as_json(entry)}" for entry in entries]
    return "".join(f"{line}\n" for line in lines)


def as_json(data):
    """Return JSON on one line. Nine digits of a number: the last ones differ between processors."""

    def rounded(value):
        if isinstance(value, Mapping):
            return {str(key): rounded(entry) for key, entry in value.items()}
        if isinstance(value, list | tuple):
            return [rounded(entry) for entry in value]
        return float(f"{value:.9g}") if isinstance(value, float) else value

    return json.dumps(rounded(data), ensure_ascii=False, allow_nan=False)


def printed(what, width=80):
    console = Console(width=width, file=StringIO())
    console.print(what, crop=False)
    return "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines())
