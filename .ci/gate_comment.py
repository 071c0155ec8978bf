"""Write the gate's comment on a pull request, or replace the one written before.

    python3 .ci/gate_comment.py gate.md OWNER/REPOSITORY NUMBER
    python3 .ci/gate_comment.py gate.md OWNER/REPOSITORY OWNER-OF-HEAD:BRANCH COMMIT

The second form finds the pull request by its head, which GitHub tells a workflow on workflow_run.
The file comes from a job that ran the pull request's code, so it may hold anything. It is posted only if it has nothing
but what `dpbench gate --comment` writes: no link, mention, image or tag of another kind. Its first line, MARKER, gets
the workflow's name, from GITHUB_WORKFLOW. A comment is replaced only if AUTHOR wrote it and its first line is equal, so
other bots and other workflows keep theirs. `gh` sends the requests, with the token in GH_TOKEN.
Exit codes: 0 written; 1 refused or failed, for the reason on standard error.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

AUTHOR = "github-actions[bot]"
MARKER = "<!-- dpbench gate -->"
MAX_CHARACTERS = 65_536
_REPOSITORY = re.compile(r"[\w-]+/(?!\.+$)[\w.-]+")

# A zero-width space prevents mentions, links and issues, in code and in HTML too. There a backslash prevents nothing,
# so only marks have one, and "<" and "&" are references.
_WRITTEN_BY_THE_GATE = re.compile(
    r"</?(?:details|summary)>"
    r"|&(?:lt|amp|emsp|\#36);"
    r"|(?:@|\#|:|(?i:www|GH-))\u200b"
    r"|\\[\\`*~|_\[\]=>#.:)+-]"
    r"|\#(?![\d\[])|:(?!//)|\](?![(\[:])|(?<!`)`(?!`)"
    r"|(?!(?i:www\.|GH-\d))[\w ,;()%'./|*+=>?!\"{}^\[-]|\n"
)


class RefusedError(Exception):
    """A text or an address that must not be sent."""


def main(arguments: list[str]) -> int:
    try:
        file, repository, place, *commit = arguments
        number = number_of(repository, place, *commit) if commit else place
        write(checked(Path(file)), repository, number, marker_of(os.environ.get("GITHUB_WORKFLOW", "")))
    except RefusedError as error:
        sys.stderr.write(f"gate_comment: {error}\n")
        return 1
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"gate_comment: {error.stderr.strip()}\n")
        return 1
    return 0


def checked(file: Path) -> str:
    """Return the text of the file. Raises RefusedError if the gate does not write such a text."""
    if file.is_symlink() or not file.is_file():
        raise RefusedError(f"{str(file)!r} is no regular file")
    with file.open("rb") as opened:
        content = opened.read(4 * MAX_CHARACTERS + 1)  # UTF-8 has at most four bytes for a character
    try:
        text = content.decode()
    except UnicodeDecodeError:
        if len(content) <= 4 * MAX_CHARACTERS:
            raise RefusedError("the text is not UTF-8") from None
        text = content.decode(errors="replace")
    if len(text) > MAX_CHARACTERS:
        raise RefusedError(f"the text is too long; at most {MAX_CHARACTERS:,} characters are allowed")
    if not text.startswith(f"{MARKER}\n"):
        raise RefusedError(f"the text does not begin with the line {MARKER!r}")
    others = _WRITTEN_BY_THE_GATE.sub("", text.removeprefix(MARKER))
    if foreign := "".join(c for c in others if c.isascii() or not c.isprintable()):
        raise RefusedError(f"the gate does not write {foreign[:20]!a}")
    return text


def marker_of(workflow: str) -> str:
    """The first line of the comments of one workflow."""
    name = re.sub(r"[^\w .]", "", workflow)[:100].strip()
    return f"{MARKER.removesuffix(' -->')} {name} -->" if name else MARKER


def number_of(repository: str, head: str, commit: str) -> str:
    """Return the number of the one open pull request whose head is this branch at this commit. Raises RefusedError."""
    if not _REPOSITORY.fullmatch(repository):
        raise RefusedError(f"{repository!a} is no repository")
    asked = ("--raw-field", f"head={head}", "--raw-field", "state=open")
    pulls = json.loads(gh("--method", "GET", *asked, f"repos/{repository}/pulls"))
    numbers = [str(each["number"]) for each in pulls if each["head"]["sha"] == commit]
    if len(numbers) != 1:
        raise RefusedError(f"{len(numbers)} open pull requests have the head {head!a} at {commit!a}, not 1")
    return numbers[0]


def write(text: str, repository: str, number: str, marker: str) -> None:
    """Replace the last comment that begins with the line `marker` and is AUTHOR's, or add one."""
    if not _REPOSITORY.fullmatch(repository) or not re.fullmatch(r"[1-9][0-9]*", number):
        raise RefusedError(f"{repository!a} or {number!a} is no repository or no number of a pull request")
    comments = f"repos/{repository}/issues/{number}/comments"
    pages = json.loads(gh("--paginate", "--slurp", f"{comments}?per_page=100"))
    ours = [each["id"] for page in pages for each in page if is_ours(each, marker)]
    method, address = ("PATCH", f"repos/{repository}/issues/comments/{ours[-1]}") if ours else ("POST", comments)
    gh("--method", method, "--input", "-", address, sent=json.dumps({"body": f"{marker}{text.removeprefix(MARKER)}"}))


def is_ours(comment: dict[str, Any], marker: str) -> bool:
    author = comment["user"] or {}  # null once the account is deleted
    return author.get("login") == AUTHOR and comment["body"].splitlines()[:1] == [marker]


def gh(*arguments: str, sent: str = "") -> str:
    """Return the answer of GitHub's API."""
    command = ["gh", "api", *arguments]
    return subprocess.run(command, input=sent, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
