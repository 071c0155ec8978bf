"""The rules of the house, held by a test each."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "dpbench").rglob("*.py"))
MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 60


def test_imports_point_down():
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache"]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 kept, 0 broken" in done.stdout


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_and_functions_are_short(path):
    text = path.read_text()
    assert text.count("\n") <= MAX_FILE_LINES
    long = {
        node.name: node.end_lineno - node.lineno + 1
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno - node.lineno + 1 > MAX_FUNCTION_LINES
    }
    assert not long


def loaded_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import dpbench",
        "import dpbench.cli",
        "import dpbench.run.runner, dpbench.run.launch",
        "import dpbench.run.child.ranks",
    ],
)
def test_the_parent_side_loads_neither_torch_nor_nvml(statement):
    assert not loaded_after(statement) & {"torch", "pynvml", "scipy"}


def test_the_wrapper_is_there_on_first_use():
    assert "torch" in loaded_after("import dpbench; dpbench.DataParallel")


def test_exported_names():
    import dpbench
    import dpbench.parallel

    wrapper = {
        *("DataParallel", "Policy", "chunk_weights", "data_parallel", "gather"),
        *("parallel_apply", "replicate", "scatter", "scatter_kwargs"),
    }
    assert set(dpbench.__all__) == wrapper | {"__version__"}
    assert set(dpbench.parallel.__all__) == wrapper
    assert all(getattr(dpbench, name) is getattr(dpbench.parallel, name) for name in wrapper)


def test_importing_registers_nothing_with_torch():
    code = (
        "import torch, threading; before = torch._C._get_privateuse1_backend_name(), threading.active_count();"
        "import dpbench.parallel, dpbench.measure.measurement;"
        "assert (torch._C._get_privateuse1_backend_name(), threading.active_count()) == before"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_pin_is_exact_and_torch_has_no_local_version():
    pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(line.count("==") == 1 for line in pins)
    assert "torch==2.13.0" in pins


def test_the_top_level_is_the_fixed_one():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    top = {line.split("/")[0] for line in listed.splitlines()}
    fixed = {"benchmarks", "dpbench", "asv.conf.json", "tests", "results", "pyproject.toml", "README.md"}
    tools = {
        ".ci",
        ".github",
        ".gitignore",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "LICENSE",
        "Makefile",
        "constraints.txt",
    }
    assert top <= fixed | tools
