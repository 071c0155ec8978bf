"""Every command in the code blocks of the pages is one: its options and values are accepted, its targets exist.

The commands of dpbench are parsed and not run. Recorded outputs in results/ keep the commands of their time.
"""

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from dpbench.cli.command_line import app

ROOT = Path(__file__).parents[2]
LISTED = subprocess.check_output(["git", "ls-files", "*.md"], cwd=ROOT, text=True).split()
PAGES = [ROOT / name for name in LISTED if not name.startswith("results/")]
COMMAND = re.compile(r"(?:dpbench|make|pytest|python -m) [a-z./-]\S*")


def code_lines(text):
    """The lines in indented and fenced blocks, joined where a backslash ends one, without comments."""
    fenced = re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    others = re.sub(r"```.*?```", "", text, flags=re.DOTALL).splitlines()
    block = "\n".join([*fenced, *[line[4:] for line in others if line.startswith("    ")]]).replace("\\\n", "")
    return [line.strip().removeprefix("$ ") for line in block.splitlines()]


COMMANDS = [
    pytest.param(line, id=f"{path.relative_to(ROOT)}: {line[:60]}")
    for path in PAGES
    for line in dict.fromkeys(code_lines(path.read_text()))
    if COMMAND.match(line) and " = " not in line
]


def words_of(line):
    """The words of the first command in a line of a shell."""
    words = shlex.split(line, comments=True)
    return words[: next((i for i, word in enumerate(words) if word in ("||", "&&", "|", ";", ">", "2>")), len(words))]


@pytest.mark.parametrize("line", COMMANDS)
def test_a_pages_command_is_accepted(line):
    program, *words = words_of(line)
    if program == "dpbench":
        group = typer.main.get_command(app)
        command = group.get_command(None, words[0])
        assert command is not None, words[0]
        with command.make_context(words[0], words[1:]):
            pass
    elif program == "make":
        done = subprocess.run(["make", "--dry-run", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    elif program == "pytest":
        where = ROOT / words[0].partition("::")[0]
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *words]
        done = (
            subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False) if where.exists() else None
        )
        assert done is not None, f"{where} is not there"
        assert done.returncode == 0, done.stdout[-1000:]
    else:
        assert importlib.util.find_spec(words[1]) is not None


def test_the_pages_have_many_commands():
    assert len(COMMANDS) > 40
