"""Run torch's own tests of CUDA graphs and of their memory pools on the stand-in, by name.

    .venv-cuda/bin/python tests/cuda_stand_in/torch_graph_tests.py VENV FOLDER

FOLDER is the folder `test` of torch's sources; README.md says where it comes from. Each name runs in a process of its own.
Exit codes: 0 all outcomes are those of `TESTS`, 1 some are not, 2 wrong input.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree as ET

FILE = "test_cuda.py"
SHA256 = "d243b1608c1cbc61271b3b55fa69eea99ec84a723c01833400724c279b3087fb"
"""torch 2.6.0's, the newest that could be had. It runs with torch 2.14.1."""
LIMIT_S = 60
PASSED = ""
TESTS: dict[str, dict[str, str]] = {}
"""For each class, the name that its tests begin with, and why they do not pass."""


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        return _refuse("two arguments are needed: VENV FOLDER")
    python, file = Path(arguments[0]).resolve() / "bin/python", Path(arguments[1]).resolve() / FILE
    for needed in (python, file):
        if not needed.is_file():
            return _refuse(f"no file {needed}; README.md says where it comes from")
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != SHA256:
        return _refuse(f"{file} has the sha256 {found}; allowed: {SHA256}, the file of torch 2.6.0")
    if subprocess.run([python, "-c", "import expecttest"], capture_output=True, check=False).returncode:
        return _refuse(f"{python} has no package expecttest, which torch's tests import")
    differ = 0
    for owner, tests in TESTS.items():
        for name, reason in tests.items():
            outcomes = run(python, file, owner, name, [other for other in tests if other != name])
            is_expected = is_as_listed(outcomes, reason)
            differ += not is_expected
            print(line(owner, name, reason, outcomes, is_expected), flush=True)  # noqa: T201
    names = [reason for tests in TESTS.values() for reason in tests.values()]
    passing = names.count(PASSED)
    print(f"{passing} names listed as passing, {len(names) - passing} not; {differ} outcomes differ")  # noqa: T201
    return 1 if differ else 0


def run(python: Path, file: Path, owner: str, name: str, others: Iterable[str]) -> list[str]:
    """Return the outcomes of the tests whose name begins with `name`: passed, skipped, failed, or one of the process."""
    further = "".join(f" and not {other}" for other in others if other.startswith(name))
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", str(file)]
        command += ["-k", f"{owner} and {name}{further}"]
        environment = {**os.environ, "DPBENCH_CUDA_DEVICES": "1", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, timeout=LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return ["timed out"]
        return outcomes_of(report) if report.exists() else [f"ended with {done.returncode}"]


def outcomes_of(report: Path) -> list[str]:
    """Return an outcome for each test of pytest's XML report; an expected failure counts as passed."""
    outcomes = []
    for case in ET.parse(report).iter("testcase"):
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            outcomes.append("failed")
        elif skipped is not None and skipped.get("type") != "pytest.xfail":
            outcomes.append("skipped")
        else:
            outcomes.append("passed")
    return outcomes


def is_as_listed(outcomes: list[str], reason: str) -> bool:
    if reason == PASSED:
        return set(outcomes) == {"passed"}
    return bool(outcomes) and set(outcomes) != {"passed"}


def line(owner: str, name: str, reason: str, outcomes: list[str], is_expected: bool) -> str:
    shown = ", ".join(f"{outcomes.count(kind)} {kind}" for kind in sorted(set(outcomes))) or "no such test"
    mark = "" if is_expected else " <- differs from the list"
    return f"{owner}.{name}: {shown}{f' ({reason})' if reason else ''}{mark}"


def _refuse(text: str) -> int:
    print(f"torch_graph_tests: {text}", file=sys.stderr)  # noqa: T201
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
