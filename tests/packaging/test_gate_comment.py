"""The script that writes the gate's comment: what it refuses, and which comment it replaces."""

import json
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dpbench.gate.judgement import Judgement
from dpbench.report.gate.forms import MARKER, MAX_CHARACTERS, gate_markdown
from tests.report.gate.making_gate import EVERY, judged

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / ".ci" / "gate_comment.py"
CHECKED = runpy.run_path(str(SCRIPT))["checked"]
BOT = "github-actions[bot]"
ISSUE = "repos/ann/project/issues/7/comments"
# Answers with the comments in comments.json; writes what it is asked to calls.jsonl.
GH = """#!{python}
import json, pathlib, sys
folder = pathlib.Path(__file__).parent
_, *arguments = sys.argv
with (folder / "calls.jsonl").open("a") as file:
    file.write(json.dumps([arguments, sys.stdin.read() if "--input" in arguments else None]) + "\\n")
if any(argument.startswith("head=") for argument in arguments):
    print((folder / "pulls.json").read_text())
if "--paginate" in arguments:
    print((folder / "comments.json").read_text())
"""


def comment(number: int, login: str | None, body: str) -> dict[str, Any]:
    return {"id": number, "user": login and {"login": login}, "body": body}


class Run:
    """The script with a fake `gh` and a file named gate.md."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "gate.md"
        gh = folder / "gh"
        gh.write_text(GH.format(python=sys.executable))
        gh.chmod(0o755)

    def __call__(
        self,
        *comments: dict[str, Any],
        repository: str = "ann/project",
        number: str = "7",
        workflow: str = "",
        sha: str = "",
    ) -> int:
        environment = {"PATH": str(self.folder), "GITHUB_WORKFLOW": workflow}
        (self.folder / "comments.json").write_text(json.dumps([list(comments)]))
        command = [sys.executable, str(SCRIPT), str(self.file), repository, number, *filter(None, [sha])]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        self.stderr = done.stderr
        return done.returncode

    def written(self) -> list[tuple[str, str, str]]:
        """Return the method, the path and the body of each request that writes."""
        calls = self.folder / "calls.jsonl"
        lines = [json.loads(line) for line in calls.read_text().splitlines()] if calls.exists() else []
        return [(a[a.index("--method") + 1], a[-1], json.loads(body)["body"]) for a, body in lines if body is not None]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


@pytest.mark.parametrize("judgement", EVERY.values(), ids=EVERY.keys())
def test_what_the_gate_writes_is_posted_unchanged(run: Run, judgement: Judgement) -> None:
    text = gate_markdown(judgement)
    run.file.write_text(text)
    assert (run(), run.stderr) == (0, "")
    assert run.written() == [("POST", ISSUE, text)]


@example("::")
@given(st.text(max_size=60) | st.text(st.sampled_from("@#:.-_*`~|\\<>&[]()!$^=+/\"'{};?% \nw10aGH€"), max_size=40))
def test_no_text_that_the_gate_quotes_is_refused(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "gate.md"
        file.write_text(written := gate_markdown(judged(why=f"x{text}", notes=(text,))))
        assert CHECKED(file) == written


def test_the_script_and_the_gate_agree_on_marker_and_length() -> None:
    script = runpy.run_path(str(SCRIPT))
    assert (script["MARKER"], script["MAX_CHARACTERS"]) == (MARKER, MAX_CHARACTERS)


def test_the_last_comment_of_ours_is_replaced_and_no_other(run: Run) -> None:
    run.file.write_text(text := f"{MARKER}\nnew\n")
    others = [
        comment(1, "ann", f"{MARKER}\nold"),
        comment(2, BOT, "another workflow's"),
        comment(3, BOT, f"a quote of {MARKER}"),
        comment(4, "other[bot]", f"{MARKER}\nold"),
        comment(5, None, f"{MARKER}\nold"),
    ]
    assert run(*others, comment(6, BOT, f"{MARKER}\nold"), comment(8, BOT, f"{MARKER}\nold"), others[0]) == 0
    assert run(*others) == 0
    assert run.written() == [("PATCH", "repos/ann/project/issues/comments/8", text), ("POST", ISSUE, text)]


def test_each_workflow_replaces_its_own_comment(run: Run) -> None:
    run.file.write_text(f"{MARKER}\nnew\n")
    gpu = "<!-- dpbench gate on GPU -->"
    old = [comment(1, BOT, f"{MARKER}\nold"), comment(2, BOT, f"{gpu}\nold"), comment(3, BOT, f"{gpu} and more\nold")]
    assert [run(*old, workflow=name) for name in ("on GPU", "gate", "on: GPU-->")] == [0, 0, 0]
    assert run.written() == [
        ("PATCH", "repos/ann/project/issues/comments/2", f"{gpu}\nnew\n"),
        ("POST", ISSUE, "<!-- dpbench gate gate -->\nnew\n"),
        ("PATCH", "repos/ann/project/issues/comments/2", f"{gpu}\nnew\n"),
    ]


@pytest.mark.parametrize(
    ("heads", "refused"),
    [({7: "abc", 8: "def"}, ""), ({8: "def"}, "0 open"), ({}, "0 open"), ({7: "abc", 9: "abc"}, "2 open")],
    ids=["one", "a newer head", "none", "two bases"],
)
def test_the_pull_request_is_the_one_with_the_judged_head(run: Run, heads: dict[int, str], refused: str) -> None:
    run.file.write_text(text := f"{MARKER}\nnew\n")
    pulls = [{"number": number, "head": {"sha": sha}} for number, sha in heads.items()]
    (run.folder / "pulls.json").write_text(json.dumps(pulls))
    assert run(number="bob:x&state=all", sha="abc") == bool(refused)
    assert refused in run.stderr
    assert run.written() == ([] if refused else [("POST", ISSUE, text)])
    asked = json.loads((run.folder / "calls.jsonl").read_text().splitlines()[0])[0]
    assert asked[-1] == "repos/ann/project/pulls"
    assert "head=bob:x&state=all" in asked


HOSTILE = {
    "a mention": "@ann",
    "a mention in a reference": "&#64;ann",
    "a mention in a padded reference": "&#064;ann",
    "a mention in a hexadecimal reference": "&#x40;ann",
    "a mention in a named reference": "&commat;ann",
    "an issue": "see #1",
    "an issue in a reference": "&#35;1",
    "a link": "[text](x)",
    "an image": "![](x)",
    "an address": "https://example.org",
    "an address without a scheme": "see www.example",
    "the same in capitals": "see WWW.example",
    "a tag": "<img src=x>",
    "a tag with an attribute": "<details open>",
    "a tag behind a backslash, which is a tag in HTML": "<details>\n\\<img src=x>",
    "a mention in code": "`@ann`",
    "a definition of a link": "[a]: x",
    "a comment": "<!-- hidden -->",
    "a second marker": MARKER,
    "code": "```sh",
    "an escape": "\x1b[31m",
    "a NUL": "\0",
    "a bidirectional override": "\u202e",
    "a carriage return": "text\rmore",
}


@pytest.mark.parametrize("line", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_text_that_the_gate_does_not_write_is_refused(run: Run, line: str) -> None:
    run.file.write_bytes(f"{MARKER}\n{line}\n".encode())
    assert run() == 1
    assert run.stderr.startswith("gate_comment: ")
    assert run.stderr.removesuffix("\n").isprintable()
    assert run.written() == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "begin"),
        (b"text\n", "begin"),
        (f"\n{MARKER}\n".encode(), "begin"),
        (f"{MARKER}\n\xff".encode("latin-1"), "UTF-8"),
        (f"{MARKER}\n".encode().ljust(MAX_CHARACTERS + 1, b"x"), "long"),
        (f"{MARKER}\n".encode().ljust(10_000_000, b"x"), "long"),
    ],
)
def test_a_file_of_another_form_is_refused(run: Run, content: bytes, said: str) -> None:
    run.file.write_bytes(content)
    assert run() == 1
    assert said in run.stderr
    assert run.written() == []


def test_the_longest_comment_is_posted(run: Run) -> None:
    run.file.write_text(text := f"{MARKER}\n".ljust(MAX_CHARACTERS, "é"))
    assert run() == 0
    assert run.written() == [("POST", ISSUE, text)]


@pytest.mark.parametrize("kind", ["missing", "folder", "link", "pipe"])
def test_only_a_regular_file_is_read(run: Run, kind: str) -> None:
    (run.folder / "other.md").write_text(f"{MARKER}\n")
    make = {
        "missing": lambda: None,
        "folder": run.file.mkdir,
        "link": lambda: run.file.symlink_to("other.md"),
        "pipe": lambda: os.mkfifo(run.file),
    }
    make[kind]()
    assert run() == 1
    assert "regular file" in run.stderr
    assert run.written() == []


@pytest.mark.parametrize(
    ("repository", "number"), [("ann/project", "7/../8"), ("ann/project", ""), ("../x/y", "7"), ("ann/..", "7")]
)
def test_names_that_lead_to_another_address_are_refused(run: Run, repository: str, number: str) -> None:
    run.file.write_text(f"{MARKER}\n")
    assert run(repository=repository, number=number) == 1
    assert run.written() == []


def test_a_failure_of_github_is_reported(run: Run) -> None:
    run.file.write_text(f"{MARKER}\n")
    (run.folder / "gh").write_text(f"#!{sys.executable}\nimport sys\nsys.exit('gh: HTTP 403')\n")
    assert run() == 1
    assert run.stderr == "gate_comment: gh: HTTP 403\n"
