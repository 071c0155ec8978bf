"""Two changes to asv's published pages: links to commits, and legends without empty lines. asv_html.py makes them."""

import json
import re
import subprocess
from pathlib import Path

_REMOTES = (
    re.compile(r"(?:https?|ssh|git)://(?:[^@/]*@)?(?P<host>[\w.-]+)(?::\d+)?/(?P<path>[\w./~-]+?)(?:\.git)?/?"),
    re.compile(r"(?:[\w.-]+@)?(?P<host>[\w.-]+\.\w+):(?P<path>[\w./~-]+?)(?:\.git)?/?"),
)
_SERIES = "orig_graphs.push({"
_ONLY_IF_MEASURED = (
    "if (!series.some(function(point) { return point && point[1] !== null && point[1] !== undefined; })) return true;\n"
    "                    "
)


class PagesError(Exception):
    """asv's pages are not as expected; the text is one line."""


def commit_url(remote: str) -> str:
    """Return the beginning of a commit's address, for a git remote on a web host; else an empty text."""
    for pattern in _REMOTES:
        if found := pattern.fullmatch(remote.strip()):
            return f"https://{found['host']}/{found['path']}/commit/"
    return ""


def origin() -> str:
    """Return the URL of the current folder's remote `origin`, or an empty text."""
    done = subprocess.run(["git", "remote", "get-url", "origin"], check=False, capture_output=True, text=True)
    return done.stdout.strip()


def link_commits(html: Path, url: str) -> None:
    """Write the address of commits into the pages' index."""
    index = html / "index.json"
    content = json.loads(index.read_text())
    index.write_text(json.dumps({**content, "show_commit_url": url}))


def drop_empty_series(html: Path) -> None:
    """Leave combinations of parameters that were never measured out of the graphs. Raises PagesError."""
    script = html / "graphdisplay.js"
    text = script.read_text()
    if _ONLY_IF_MEASURED in text:
        return
    if text.count(_SERIES) != 1:
        raise PagesError(f"{script}: {_SERIES!r} is there {text.count(_SERIES)} times; allowed: once, as in asv 0.6")
    script.write_text(text.replace(_SERIES, _ONLY_IF_MEASURED + _SERIES))
