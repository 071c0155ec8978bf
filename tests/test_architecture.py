"""The rules of the house, held by a test each."""

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "dpbench").rglob("*.py"))
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60


def test_imports_point_down():
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache"]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 kept, 0 broken" in done.stdout


def test_files_and_functions_are_short():
    long: dict[str, int] = {}
    for path in SOURCES:
        text, name = path.read_text(), str(path.relative_to(ROOT))
        if text.count("\n") > MAX_FILE_LINES:
            long[name] = text.count("\n")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = node.end_lineno - node.lineno + 1
                long |= {f"{name} {node.name}": lines} if lines > MAX_FUNCTION_LINES else {}
    assert not long


def test_a_public_class_name_exists_once_in_a_room():
    places: dict[tuple[str, str], list[str]] = {}
    for path in SOURCES:
        name = path.relative_to(ROOT)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault((name.parts[1], node.name), []).append(str(name))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_the_name_of_a_file_exists_once():
    names = Counter(path.name for path in SOURCES if path.name != "__init__.py")
    assert [name for name, count in names.items() if count > 1] == []


def test_the_index_of_a_room_has_all_its_files_and_no_other():
    wrong = {}
    for path in SOURCES:
        index = set(re.findall(r"(\w+)\.py\b", ast.get_docstring(ast.parse(path.read_text())) or ""))
        own = {file.stem for file in path.parent.glob("*.py")} - {"__init__"}
        if path.name == "__init__.py" and len(index & own) > 2:
            unknown = {name for name in index - own if not list(ROOT.glob(f"dpbench/**/{name}.py"))}
            wrong[str(path.relative_to(ROOT))] = (own - index) | unknown
    assert {path: names for path, names in wrong.items() if names} == {}
    assert len(wrong) > 10


def test_few_files_are_tiny():
    tiny = [path for path in SOURCES if path.name != "__init__.py" and path.read_text().count("\n") < 40]
    assert len(tiny) < len(SOURCES) / 20, sorted(map(str, tiny))


# `build` holds Debian roots with pages of their own (.ci/test_python).
PAGES = sorted(
    path
    for top in ROOT.iterdir()
    if top.name == ".github" or not (top.name.startswith(".") or top.name == "build")
    for path in ([top] if top.suffix == ".md" else top.rglob("*.md"))
    if not any(part.startswith(".") for part in path.relative_to(top).parts)
)
READMES = [path for path in PAGES if path.name == "README.md"]


def sentences(markdown: str) -> list[str]:
    """The sentences of a page, without code, tables, quotes and headings. A list item begins a sentence."""
    text = re.sub(r"```.*?```", "", markdown, flags=re.DOTALL)
    lines = [line for line in text.splitlines() if not re.match(r"\s*\||    |\s*#|\s*>", line)]
    text = re.sub(r"\n\s*(?:[-*]|\d+\.)\s|\n\s*\n", "\n.\n", "\n".join(lines))
    return [" ".join(sentence.split()) for sentence in re.split(r"(?<=[.!?:;])\*{0,2}\s+", text)]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_sentences_are_short(page):
    assert [sentence for sentence in sentences(page.read_text()) if len(sentence.split()) > 30] == []


def test_readmes_are_short():
    words = {str(path.relative_to(ROOT)): len(path.read_text().split()) for path in READMES}
    assert words["README.md"] < 1500
    assert (ROOT / "README.md").read_text().count("\n") <= 200
    assert sum(words.values()) < 9400, words


RETIRED = r"crew|hand(?:ed|s)? out|handout|belongings|yardsticks?|onlookers?|loners?|parcels?|campaigns?|this box"


def test_retired_words_stay_away():
    """Words of our own that the field's terms have replaced. Recorded outputs keep theirs."""
    pages = [page for page in PAGES if page.relative_to(ROOT).parts[0] != "results"]
    retired = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]}"
        for path in (*SOURCES, *pages)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (match := re.search(rf"\b(?:{RETIRED})\b", line, re.IGNORECASE))
    ]
    assert retired == []


def test_links_between_pages_lead_somewhere():
    targets = [
        (page, target.partition("#")[0])
        for page in PAGES
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text())
        if "://" not in target
    ]
    broken = [(str(page), target) for page, target in targets if target and not (page.parent / target).exists()]
    assert broken == []


def loaded_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import dpbench",
        "from dpbench.cli import main, " + ", ".join(path.stem for path in (ROOT / "dpbench/cli").glob("[a-z]*.py")),
        "import dpbench.jobs.sweep, dpbench.engine.launch",
        "import dpbench.jobs.ranks",
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
        *("parallel_apply", "replicate", "scatter", "scatter_kwargs", "with_loss"),
    }
    assert set(dpbench.__all__) == wrapper | {"__version__", "compare", "variant"}
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
