"""The child that compiles Python files of a commit.

    python -m dpbench.jobs.compile_child --record-fd N --parent-pid P

It can write in this folder only, and follows no link: one of the commit may lead out, or to an endless device. Files
with faults are left out.
"""

import compileall
from pathlib import Path

from dpbench.engine.child import answer
from dpbench.engine.fence import confine
from dpbench.engine.messages import CompileJob
from dpbench.text.outside import MOST_BYTES
from dpbench.text.validated import Frozen


def respond(job: CompileJob) -> Frozen:
    confine([job.folder])
    for place in job.places:
        for path in (Path(job.folder, f"{place}.py"), *Path(job.folder, place).rglob("*.py")):
            if path.is_file() and not path.is_symlink() and path.stat().st_size <= MOST_BYTES:
                compileall.compile_file(path, quiet=2)
    return Frozen()


if __name__ == "__main__":
    answer(respond)
