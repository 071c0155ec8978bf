"""Defaults of options that a project sets in its pyproject.toml, as `default_map` of typer's context takes them."""

from pathlib import Path

from dpbench.cases.project_file import find_project_table

_RUNS = ("results", "runs")
_FOLDERS = {
    "compare": _RUNS,
    "sweep": _RUNS,
    "elastic": _RUNS,
    "project": _RUNS,
    "trace": ("output", "runs"),
    "gate": ("results", ""),
}
"""By command: the option for its folder, and the name of this folder in the project's folder of results."""


def project_defaults(command: str | None) -> dict[str, str]:
    """Return a command's defaults from the current project's pyproject.toml, as text of the command line.

    Raise WrongInputError. A command without such options never reads the file.
    """
    found = find_project_table(Path.cwd()) if command in _FOLDERS else None
    if found is None or command is None:
        return {}
    path, table = found
    defaults = {key: _text(value) for key, value in table.compare.items()} if command == "compare" else {}
    if table.results is not None:
        option, name = _FOLDERS[command]
        defaults[option] = str(path.parent / table.results / name)
    return defaults


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
