"""Print the part of the lock that some packages need, themselves included.

    .venv/bin/python .ci/lock.py rich 'torch-dpbench[dev]' > part.txt
    pip install --require-hashes --no-deps --requirement part.txt

What a package needs is read from those installed beside this interpreter. `make lock` writes the lock.
Exit codes: 0 printed; 1 a package is not in the lock, named on standard error.
"""

import re
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LOCK = Path(__file__).with_name("lock.txt")
OUTSIDE = re.compile(r"torch|triton|(?:nvidia|cuda)-.*|torch-dpbench")
"""torch and its NVIDIA wheels depend on the machine. This project is no package of an index."""


def main(names: list[str]) -> int:
    found, locked = needed(names), entries()
    for name in sorted(found - locked.keys()):
        if not OUTSIDE.fullmatch(name):
            sys.stderr.write(f"lock: .ci/lock.txt has no {name}; add it to constraints.txt, then run `make lock`\n")
            return 1
    sys.stdout.write("".join(text for name, text in locked.items() if name in found))
    return 0


def entries() -> dict[str, str]:
    """Return the lines of each package in the lock, by its canonical name."""
    found = re.findall(r"^([\w.-]+)(==.*\n(?: .*\n)*)", LOCK.read_text(), re.MULTILINE)
    return {canonicalize_name(name): name + rest for name, rest in found}


def needed(texts: Iterable[str]) -> set[str]:
    """Return the canonical names of the packages and of all that they need."""
    todo, seen = list(map(Requirement, texts)), set()
    while todo:
        each = todo.pop()
        name = canonicalize_name(each.name)
        for extra in {"", *each.extras}:
            if (name, extra) not in seen:
                seen.add((name, extra))
                todo += [one for one in needs(name) if one.marker is None or one.marker.evaluate({"extra": extra})]
    return {name for name, _ in seen}


def needs(name: str) -> list[Requirement]:
    """Return what a package declares; nothing if it is not installed, as nvidia-cublas beside a CPU build of torch."""
    try:
        return list(map(Requirement, requires(name) or ()))
    except PackageNotFoundError:
        return []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
