"""Run a commit's command, such as its build, behind the fence.

    python -m dpbench.processes.child.fenced FOLDER ... -- COMMAND ...

It may write in these folders and in a scratch folder of its own.
"""

import os
import sys
from pathlib import Path

from dpbench.processes.fence import enclose


def main() -> None:
    split = sys.argv.index("--")
    enclose(folders=map(Path, sys.argv[1:split]))
    os.execvp(sys.argv[split + 1], sys.argv[split + 1 :])  # noqa: S606  # the settings name the command


if __name__ == "__main__":
    main()
