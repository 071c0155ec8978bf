"""The child that compiles Python files of a commit: a JSON list on stdin, a folder and what to compile in it.

    python -m dpbench.jobs.compile_child --record-fd N --parent-pid P

It can write in this folder only, and follows no link: one of the commit may lead out, or to an endless device. Files
with faults are left out.
"""

import compileall
import json
from pathlib import Path

from dpbench.engine.child import answer
from dpbench.engine.fence import confine
from dpbench.text.outside import MOST_BYTES
from dpbench.text.validated import Frozen


def respond(text: str) -> Frozen:
    folder, *places = json.loads(text)
    confine([folder])
    for place in places:
        for path in (Path(folder, f"{place}.py"), *Path(folder, place).rglob("*.py")):
            if path.is_file() and not path.is_symlink() and path.stat().st_size <= MOST_BYTES:
                compileall.compile_file(path, quiet=2)
    return Frozen()


if __name__ == "__main__":
    answer(respond)
