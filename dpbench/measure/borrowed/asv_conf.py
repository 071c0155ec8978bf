"""Which configuration of asv a commit's benchmarks belong to; without asv.

A benchmark of a configuration that was named has a name such as ``bench/asv-pr.conf.json:speed.time_work``.
"""

import re
from pathlib import Path

from dpbench.text.outside import read_input

_NAMES = ("asv.conf.json", "asv.conf.jsonc")
_NAMED = re.compile(r"([^:()]+\.jsonc?)(?::(.*))?", re.DOTALL)
_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)
_SUBDIR = re.compile(r'"repo_subdir"\s*:\s*"([^"]*)"')


def split_name(text: str) -> tuple[str | None, str]:
    """The path of a configuration, or None, and the rest: ``time`` of ``a.json:time``, and ``.`` of ``a.json``."""
    match = _NAMED.fullmatch(text)
    return (match[1], match[2] or ".") if match else (None, text)


def configurations(commit: Path) -> list[Path]:
    """Those with asv's usual name, the one in the least deep folder first."""
    paths = [path for name in _NAMES for path in commit.rglob(name) if ".git" not in path.relative_to(commit).parts]
    return sorted(paths, key=lambda path: (len(path.parts), path))


def repo_subdir(commit: Path, named: str | None = None) -> str:
    """The folder of the project in the repository, by the configuration's `repo_subdir`; empty for the top."""
    paths = [commit / named] if named else configurations(commit)
    try:
        text = read_input(paths[0]).decode(errors="replace") if paths else ""
    except OSError:  # asv will say so
        text = ""
    match = _SUBDIR.search(_COMMENT.sub("", text))
    return match[1] if match else ""
