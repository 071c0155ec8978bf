"""A project's defaults: the table `[tool.dpbench]` of its pyproject.toml.

results = "bench/results"         a folder, seen from pyproject.toml
compare                           a table of options of `dpbench compare`, with the keys of a sweep file
gate                              a table with the keys of gate.toml, which the gate checks
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field

from dpbench.cases.spec import Spec
from dpbench.errors import WrongInputError
from dpbench.text.outside import one_line, quoted, read_toml
from dpbench.text.validated import Frozen, nearest, one_of, validated

PROJECT_FILE = "pyproject.toml"
_NO_OPTIONS = ("case_time",)
_OPTIONS = [key for name, field in Spec.model_fields.items() if (key := field.alias or name) not in _NO_OPTIONS]


class ProjectTable(Frozen):
    results: str | None = Field(None, pattern=r"^[^\x00]+$", description="text: a folder")
    compare: dict[str, Any] = Field({}, description="a table with options of dpbench compare")
    gate: dict[str, Any] | None = Field(None, description="a table with the keys of gate.toml")


def find_project_table(folder: Path) -> tuple[Path, ProjectTable] | None:
    """In the nearest pyproject.toml that has the table; in a git repository parents count, up to its root.

    Raise WrongInputError, as `read_project_table` does.
    """
    for place in _places(folder.absolute()):
        path = Path(os.path.relpath(place / PROJECT_FILE, folder))
        if os.path.isfile(place / PROJECT_FILE) and (table := read_project_table(path, folder)) is not None:
            return path, table
    return None


def read_project_table(path: Path, folder: Path = Path()) -> ProjectTable | None:
    """The table, or None without one; `path` is seen from `folder`.

    Raise WrongInputError with the file, field, value and what is allowed; fields of `gate` are not checked.
    """
    try:
        table: Any = read_toml(folder / path)
    except OSError as error:
        raise WrongInputError(f"{path}: cannot be read: {error.strerror}; allowed: a TOML file") from error
    except ValueError as error:
        raise WrongInputError(f"{path}: is not TOML: {one_line(str(error))}") from error
    for name in ("tool", "dpbench"):
        if name not in table:
            return None
        table = table[name]
        if not isinstance(table, dict):
            raise WrongInputError(f"{path}: {name}: {quoted(table)} is not allowed; allowed: a table")
    project = validated(ProjectTable, table, lambda key: f"{path}: tool.dpbench.{key}")
    _check_options(f"{path}: tool.dpbench.compare.", project.compare)
    return project


def _places(folder: Path) -> Iterator[Path]:
    places = [folder, *folder.parents]
    root = next((place for place in places if os.path.exists(place / ".git")), folder)
    yield from places[: places.index(root) + 1]


def _check_options(where: str, options: dict[str, Any]) -> None:
    for key in options:
        if key not in _OPTIONS:
            raise WrongInputError(f"{where}{key}: unknown key{nearest(key, _OPTIONS)}; allowed: {one_of(_OPTIONS)}")
    validated(Spec, options, lambda key: f"{where}{key}")
