"""What `make` installs: packages with hashes, this project without its dependencies, and the chosen torch."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PINNED = re.findall(r"^torch==.*", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
FIRST = ".venv/bin/python -m pip install --quiet --no-deps --require-hashes --requirement .ci/lock.txt"
LAST = ".venv/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable ."
TORCH = ".venv/bin/python -m pip install --quiet --constraint .venv/constraints.txt "


def installs(target: str, *settings: str) -> list[str]:
    """Return the commands of `make target` that install or create an environment. None is run."""
    command = ["make", "--dry-run", "--always-make", target, *settings]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [" ".join(line.split()) for line in done.stdout.splitlines() if re.search(r"-m (pip install|venv) ", line)]


def test_the_makefile_installs_nothing_but_torch_without_a_hash() -> None:
    recipes = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    installs = re.findall(r"(?<=-m )pip (?:install|download) .*", recipes)
    unhashed = [line for line in installs if "--no-deps --require-hashes --requirement" not in line]
    assert len(installs) - len(unhashed) == 3
    torch = [line for line in unhashed if " torch==" in line]
    ours = [line for line in unhashed if line not in torch]
    assert [line.split(" torch==")[1].split()[0] for line in torch] == ["$(TORCH_VERSION))", "=$(CUDA_TORCH)"]
    assert sorted(ours, reverse=True) == [
        "pip install --quiet --no-deps dist/*.whl",
        "pip install --quiet --no-deps --no-build-isolation --editable .",
        "pip install --quiet --no-deps --no-build-isolation --editable .",
    ]


@pytest.mark.parametrize(
    ("settings", "torch"),
    [
        (["TORCH=pinned"], [TORCH + PINNED[0]]),
        (["TORCH=2.11.0"], [TORCH + "torch==2.11.0"]),
        (["TORCH=system"], []),
        (["TORCH=system", "TORCH_INDEX=https://x"], []),
        (["TORCH=pinned", "TORCH_INDEX=https://x"], [TORCH + f"--no-deps --index-url https://x {PINNED[0]}"]),
    ],
)
def test_an_environment_has_the_lock_then_the_chosen_torch_then_this_project(
    settings: list[str], torch: list[str]
) -> None:
    create, *commands = installs("venv", "PYTHON=python3", *settings)
    assert create == f"python3 -m venv {'--system-site-packages ' if 'TORCH=system' in settings else ''}.venv"
    assert commands == [FIRST, *torch, LAST]


def test_the_wheel_alone_gets_its_part_of_the_lock_and_then_itself() -> None:
    commands = [line for line in installs("dist-alone", "TORCH=pinned") if ".venv/alone" in line]
    assert commands[1:] == [
        FIRST.replace(".venv", ".venv/alone").replace(".ci/lock.txt", ".venv/alone.txt"),
        TORCH.replace(".venv", ".venv/alone") + PINNED[0],
        ".venv/alone/bin/python -m pip install --quiet --no-deps dist/*.whl",
    ]


def test_a_noisy_machine_does_not_fail_the_wheel_and_a_broken_doctor_does() -> None:
    (rule,) = re.findall(r'/bin/dpbench" doctor (.*)', (ROOT / "Makefile").read_text())
    guard = rule.replace("$$", "$")
    ends = {
        code: subprocess.run(["sh", "-c", f"(exit {code}) {guard}"], check=False).returncode for code in (0, 1, 2, 3)
    }
    assert ends == {0: 0, 1: 0, 2: 1, 3: 1}


def test_the_tests_children_keep_their_byte_code(tmp_path: Path) -> None:
    ready, python = tmp_path / "ready", tmp_path / "python"
    ready.touch()
    python.write_text("#!/bin/sh\necho \"byte code: '$PYTHONDONTWRITEBYTECODE'\"\n")
    python.chmod(0o755)
    command = ["make", "test", f"BIN={tmp_path}", f"READY={ready}"]
    of_outer_make = {"MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "TORCH", "ARGS"}
    environment = {name: value for name, value in os.environ.items() if name not in of_outer_make}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.splitlines()[-1] == "byte code: ''"
