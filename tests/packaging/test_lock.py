"""The lock has every package that an environment needs, with hashes, and the versions of constraints.txt."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / ".ci" / "lock.py"
LOCK = ROOT / ".ci" / "lock.txt"


def pins(text: str) -> dict[str, str]:
    pairs = re.findall(r"^([A-Za-z0-9][\w.-]*)==([^\s\\;]+)", text, re.MULTILINE)
    assert len(pairs) == len(dict(pairs))
    return {canonicalize_name(name): version for name, version in pairs}


def test_the_lock_has_the_versions_of_the_constraints_and_torch_alone_is_left_out() -> None:
    wanted = pins((ROOT / "constraints.txt").read_text())
    assert wanted.pop("torch")
    assert pins(LOCK.read_text()) == wanted != {}


def test_every_line_of_the_lock_is_a_pin_for_all_platforms_or_its_hash() -> None:
    lines = [line for line in LOCK.read_text().splitlines() if not line.startswith("#")]
    wrong = re.compile(r"(?![\w.-]+==[\w.]+ \\$|    --hash=sha256:[0-9a-f]{64}(?: \\)?$)")
    assert [line for line in lines if wrong.match(line)] == []


def test_every_pin_has_hashes() -> None:
    entries = runpy.run_path(str(SCRIPT))["entries"]()
    assert len(entries) == len(pins(LOCK.read_text()))
    # One for a wheel and one for the sdist. Packages with compiled code have many more, or they would fit one platform.
    assert [name for name, text in entries.items() if text.count("--hash=sha256:") < 1] == []
    assert all(entries[name].count("--hash") > 20 for name in ("numpy", "scipy", "scikit-learn", "pydantic-core"))


def test_the_lock_has_all_that_the_tools_and_the_project_need() -> None:
    names = subprocess.run(
        [sys.executable, SCRIPT, "torch-dpbench[dev]"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert (names.returncode, names.stderr) == (0, "")
    assert {"numpy", "pluggy", "pytest", "sympy", "zizmor"} <= set(pins(names.stdout))
    assert set(pins(names.stdout).items()) <= set(pins(LOCK.read_text()).items())


def test_a_part_of_the_lock_has_what_the_names_need_and_no_more() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "rich"], capture_output=True, text=True, check=True, cwd=ROOT)
    assert set(pins(done.stdout)) == {"rich", "markdown-it-py", "mdurl", "pygments"}
    assert done.stdout.count("--hash=sha256:") >= 8


def test_a_package_outside_the_lock_is_refused_by_name() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "pip"], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "lock: .ci/lock.txt has no pip; add it to constraints.txt, then run `make lock`\n"


@pytest.mark.parametrize("name", ["torch", "nvidia-cublas", "cuda-bindings", "triton", "torch-dpbench"])
def test_torch_with_its_nvidia_wheels_and_this_project_may_be_outside(name: str) -> None:
    assert runpy.run_path(str(SCRIPT))["OUTSIDE"].fullmatch(name)


@pytest.mark.parametrize("name", ["torchvision", "numpy", "my-nvidia", "triton-x", "dpbench"])
def test_no_other_package_may_be_outside(name: str) -> None:
    assert not runpy.run_path(str(SCRIPT))["OUTSIDE"].fullmatch(name)
