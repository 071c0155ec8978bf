"""asv's results folder: find the machine, the commits and the units."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from dpbench.asv.machine_file import AsvError
from dpbench.asv.result_file import ResultFile, read_results
from dpbench.sweep.outside import read_json

DISCOVER = "asv run --bench just-discover"
"""The command that writes asv's list of benchmarks, which asv needs beside the results files."""
_FEWEST_DIGITS = 4  # of a hash, as in git. asv names a file by the first eight.


@dataclass(frozen=True)
class Commit:
    """A commit's hash, and its results files by environment. There is at least one file."""

    hash: str
    files: dict[str, ResultFile]


def machine_in(results: Path, machine: str | None) -> str:
    """Return `machine` if it has results, or the only machine that has. Raises AsvError."""
    try:
        known = sorted(path.parent.name for path in results.glob("*/machine.json"))
    except OSError as error:
        raise AsvError(f"{results}: cannot be read: {error.strerror}") from error
    if machine in known or (machine is None and len(known) == 1):
        return machine or known[0]
    allowed = ", ".join(known) or f"none, as {results} has no results; first: asv run"
    raise AsvError(f"--machine: {machine!r} does not name the results in {results}; allowed: {allowed}")


def commit_of(revision: str, option: str, folder: Path) -> Commit:
    """Return the commit that git resolves `revision` to, or whose hash begins with it.

    `folder` is a machine's; `option` names the argument in the error. Raises AsvError.
    """
    commit = _resolved(revision) or revision
    named = {path: path.name.partition("-")[0] for path in sorted(folder.glob("*-*.json"))}
    likely = [path for path, digits in named.items() if digits.startswith(commit[:8]) and len(commit) >= _FEWEST_DIGITS]
    files = [file for file in map(_read, likely) if file.commit_hash.startswith(commit)]
    hashes = {file.commit_hash for file in files}
    if len(hashes) != 1:
        resolved = "" if commit == revision else f", commit {commit[:8]},"
        what = "begins several hashes" if hashes else "has no results"
        allowed = ", ".join(dict.fromkeys(named.values())) or "none"
        raise AsvError(
            f"{option}: {revision!r}{resolved} {what} in {folder}; allowed: {allowed}, or a revision of them"
        )
    return Commit(hashes.pop(), {file.env_name: file for file in files})


def _read(path: Path) -> ResultFile:
    """Return the file, after every row was read once. Raises AsvError."""
    file = read_results(path)
    try:
        for name in file.results:
            file.row(name)
    except AsvError as error:
        raise AsvError(f"{path}: {error}") from error
    return file


def units_in(results: Path) -> dict[str, str]:
    """Return the units by benchmark, or {} if asv has not written its list yet.

    Raises AsvError.
    """
    path = results / "benchmarks.json"
    try:
        fields = read_json(path)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise AsvError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise AsvError(f"{path}: is not JSON: {error}; allowed: what `{DISCOVER}` writes") from error
    try:
        return {name: str(entry["unit"]) for name, entry in fields.items() if name != "version"}
    except (AttributeError, KeyError, TypeError) as error:
        raise AsvError(f"{path}: is not a list of benchmarks: {error!r}; allowed: what `{DISCOVER}` writes") from error


def lacks(results: Path, machine: str) -> list[str]:
    """Return a line if asv cannot read the machine's results yet, else nothing."""
    missing = [path for path in (results / "benchmarks.json", results / machine / "machine.json") if not path.exists()]
    if not missing:
        return []
    return [f"asv does not read these results without {' and '.join(map(str, missing))}; first: {DISCOVER}"]


def _resolved(revision: str) -> str | None:
    """Return the commit's hash in the current folder's repository, or None."""
    command = ["git", "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except OSError:  # without git, the beginning of a hash still names a commit
        return None
    return done.stdout.strip() if done.returncode == 0 else None
