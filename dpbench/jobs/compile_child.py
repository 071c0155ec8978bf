"""The child that compiles Python files of a commit: a JSON list on stdin, a folder and what to compile in it.

    python -m dpbench.jobs.compile_child --record-fd N --parent-pid P

It can write in this folder only: a link of the commit may lead out of it. Files with faults are left out.
"""

import compileall
import json
from pathlib import Path

from dpbench.engine.child import answer
from dpbench.engine.fence import confine
from dpbench.text.validated import Frozen


def respond(text: str) -> Frozen:
    folder, *places = json.loads(text)
    confine([folder])
    for place in places:
        compileall.compile_dir(Path(folder, place), quiet=2)
        compileall.compile_file(Path(folder, f"{place}.py"), quiet=2)
    return Frozen()


if __name__ == "__main__":
    answer(respond)
