"""The child that keeps one core busy, whichever the scheduler gives it, for as long as its parent lives.

python -m dpbench.run.child.busy_core PARENT_PID
"""

import sys

from dpbench.run.process_tree import die_with_parent


def main() -> None:
    die_with_parent(int(sys.argv[1]))
    while True:
        pass


if __name__ == "__main__":
    main()
