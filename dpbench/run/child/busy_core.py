"""A child that keeps one core busy until its parent ends. The scheduler chooses the core.

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
