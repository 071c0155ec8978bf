"""`dpbench init`: write a gate's settings for this repository, and workflows for its CI."""

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Annotated

from dpbench.cases.project_file import find_project_table
from dpbench.cli.options import option
from dpbench.cli.terminal import show_lines
from dpbench.errors import ExitCode, GateError, WrongInputError
from dpbench.gate.first_settings import FoundBenchmarks, find_benchmarks, settings_text
from dpbench.gate.revisions import Repository
from dpbench.gate.settings import SETTINGS
from dpbench.text.files import reason_of, refuse_links

_WORKFLOWS = Path(".github/workflows")
_TEMPLATES = Path(__file__).parents[1] / "gate" / "workflows"
_PLACEHOLDER = r"OWNER/dpbench(/[\w./]+)@0{40} #.*"
_GITHUB = re.compile(r"(?:git\+)?https://github\.com/([\w-]+/[\w.-]+?)(?:\.git)?/?")


class Ci(StrEnum):
    GITHUB = "github"


def init(
    ci: Annotated[Ci | None, option("Write workflows too: github has one that judges, and one that comments.")] = None,
) -> ExitCode:
    """Write benchmarks/gate.toml with this repository's own benchmarks. Files that exist stay as they are."""
    try:
        repository = Repository(Path.cwd())
        benchmarks = find_benchmarks(repository.root, repository.tracked_files())
    except GateError as error:
        raise WrongInputError(f"{error}; allowed: a folder in a git repository") from error
    texts = {SETTINGS: settings_text(benchmarks), **(_workflows() if ci is Ci.GITHUB else {})}
    kept = {name: "exists" for name in texts if os.path.lexists(repository.root / name)}
    project = find_project_table(repository.root)
    if project is not None and project[1].gate is not None:
        kept.setdefault(SETTINGS, "pyproject.toml has [tool.dpbench.gate]")
    new = {name: text for name, text in texts.items() if name not in kept}
    write_new(repository.root, new)
    show_lines(f"{name}: not written: {reason}" for name, reason in kept.items())
    asv, tests = int(benchmarks.has_asv), len(benchmarks.tests)
    counts = f": factories {len(benchmarks.factories)}, suites of asv {asv}, files of pytest-benchmark {tests}"
    show_lines(f"{name}: written{counts if name == SETTINGS else ''}" for name in new)
    show_lines(_next_steps(benchmarks, new))
    return ExitCode.OK


def write_new(root: Path, texts: Mapping[Path, str]) -> None:
    """Write all files with their folders, or none; raise WrongInputError, also if one exists."""
    made: list[Path] = []
    path = root
    try:
        for name, text in texts.items():
            path = root / name
            refuse_links(path)
            for folder in reversed([parent for parent in path.parents if not parent.exists()]):
                folder.mkdir()
                made.append(folder)
            with path.open("x", encoding="utf-8") as file:
                made.append(path)
                file.write(text)
    except BaseException as error:
        for entry in reversed(made):
            with suppress(OSError):
                entry.rmdir() if entry.is_dir() else entry.unlink()
        if not isinstance(error, OSError):
            raise
        place = str(path.relative_to(root))
        raise WrongInputError(f"{place!r} cannot be written: {reason_of(error)}; allowed: a new file") from error


def _workflows() -> dict[Path, str]:
    texts = {_WORKFLOWS / path.name: path.read_text(encoding="utf-8") for path in sorted(_TEMPLATES.glob("*.yml"))}
    place = _installed_from()
    return {name: re.sub(_PLACEHOLDER, place, text) for name, text in texts.items()} if place else texts


def _installed_from() -> str | None:
    """GitHub's owner/name and commit from PEP 610's direct_url.json, for the placeholder."""
    with suppress(PackageNotFoundError, ValueError, KeyError, TypeError):
        url = json.loads(distribution("torch-dpbench").read_text("direct_url.json") or "{}")
        place, commit = _GITHUB.fullmatch(url["url"]), url["vcs_info"]["commit_id"]
        if place and re.fullmatch("[0-9a-f]{40}", commit):
            return rf"{place[1]}\1@{commit}"
    return None


def _next_steps(benchmarks: FoundBenchmarks, new: Mapping[Path, str]) -> list[str]:
    if not new:
        return ["complete: dpbench gate --base HEAD~1"]
    is_empty = SETTINGS in new and not (benchmarks.factories or benchmarks.has_asv or benchmarks.tests)
    suites = "; its suites need pip install 'torch-dpbench[suites]'" if benchmarks.has_asv or benchmarks.tests else ""
    return [
        "next:",
        f"  name a benchmark of yours in {SETTINGS}" if is_empty else f"  read {SETTINGS}{suites}",
        *(["  set OWNER and the commit in the workflows"] if any("OWNER/" in text for text in new.values()) else []),
        f"  commit {' '.join(map(str, new))}, then change code and judge it: dpbench gate --base HEAD --worktree",
    ]
