"""The first settings of a project: what of its own code a gate can measure.

    def step() -> Workload                      a factory, in the repository's root or src
    asv.conf.json                               a suite of asv, in any folder
    def test_forward(benchmark)                 a test of pytest-benchmark

Only files that git tracks count. They are parsed, and nothing is executed.
"""

import ast
import json
import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path, PurePosixPath

from dpbench.measure.borrowed.asv_conf import repo_subdir
from dpbench.text.outside import read_input, read_toml

_OF_A_FILE = 2
"""Minutes of a gate for each file of benchmarks or suite; a factory has one. Both are guesses."""
_MOST_MINUTES = 30
_ASV = ("asv.conf.json", "asv.conf.jsonc")
_HEAD = """\
# What `dpbench gate` measures. The page dpbench/gate/README.md has all fields.
# `variant = "single"` with `devices = "cpu"` judges a step on one device, without dpbench's wrapper.
budget = "{minutes}m"                     # for all benchmarks; an undecided verdict says which would do
{build}"""
_FACTORY = """
[[benchmark]]
name = {name}
workload = {factory}
batch = 64                          # items in the global batch
variant = "tuned"                   # the step through dpbench's wrapper, on all devices, or two lanes of the CPU
threshold = "2%"                    # the tolerated growth
"""
_BORROWED = """
[[benchmark]]
{suite} = {text}
pattern = true                      # {meaning}
"""
_NOTHING = """\
# No factory, no suite of asv and no test of pytest-benchmark was found in the files that git tracks.
# [[benchmark]]
# name = "my_step"
# workload = "my_project.bench:step"  # a function without arguments that returns a dpbench Workload
# batch = 64                          # items in the global batch
# threshold = "2%"                    # the tolerated growth
# [[benchmark]]
# pytest = "tests/test_speed.py"      # or asv = "Step.*"
# pattern = true                      # every benchmark in this file; for asv, a regular expression
"""


@dataclass(frozen=True)
class FoundBenchmarks:
    """Factories as ``package.module:function``, a suite of asv, files of tests, and whether pip installs the code."""

    factories: tuple[str, ...] = ()
    has_asv: bool = False
    tests: tuple[str, ...] = ()
    is_installable: bool = True


def find_benchmarks(root: Path, files: Iterable[str]) -> FoundBenchmarks:
    """A file that cannot be read or parsed has nothing."""
    names = sorted(filter(str.isprintable, files))
    factories, tests = list[str](), list[str]()
    for name in names:
        if name.endswith(".py"):
            tree = _parsed(root / name)
            module = _module(name)
            factories += [f"{module}:{factory}" for factory in _factories(tree)] if module else []
            tests += [name] if any(map(_is_benchmark, _functions(tree))) else []
    paths, project = set(map(Path, names)), Path(repo_subdir(root))
    return FoundBenchmarks(
        factories=tuple(factories),
        has_asv=any(PurePosixPath(name).name in _ASV for name in names),
        tests=tuple(tests),
        is_installable=project / "setup.py" in paths
        or (project / "pyproject.toml" in paths and _has_build(root / project / "pyproject.toml")),
    )


def settings_text(found_benchmarks: FoundBenchmarks) -> str:
    """Examples in comments if there are no benchmarks. Pure."""
    build = (
        ""
        if found_benchmarks.is_installable
        else 'build = ""                          # pip cannot install this repository\n'
    )
    tables = [
        _FACTORY.format(name=_quoted(name), factory=_quoted(factory))
        for name, factory in _named(found_benchmarks.factories).items()
    ]
    if found_benchmarks.has_asv:
        tables.append(_BORROWED.format(suite="asv", text='"."', meaning="a regular expression"))
    for test in found_benchmarks.tests:
        tables.append(_BORROWED.format(suite="pytest", text=_quoted(test), meaning="every benchmark in this file"))
    minutes = min(
        _MOST_MINUTES,
        4 + len(found_benchmarks.factories) + _OF_A_FILE * (len(found_benchmarks.tests) + found_benchmarks.has_asv),
    )
    return _HEAD.format(build=build, minutes=max(5, minutes)) + ("".join(tables) or _NOTHING)


def _parsed(path: Path) -> ast.Module:
    with suppress(OSError, SyntaxError, ValueError, RecursionError, MemoryError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source = read_input(path)
        if b"benchmark" in source or b"dpbench" in source:
            return ast.parse(source)
    return ast.Module([], [])


def _module(name: str) -> str | None:
    """The module of a file, as a gate imports it from the root or src, or None if it has no such name."""
    parts = list(PurePosixPath(name).with_suffix("").parts)
    parts = parts[1:] if parts[0] == "src" else parts
    parts = parts[:-1] if parts[-1:] == ["__init__"] else parts
    return ".".join(parts) if parts and all(part.isidentifier() and not iskeyword(part) for part in parts) else None


def _factories(tree: ast.Module) -> Iterator[str]:
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    for node in tree.body if any("dpbench" in ast.unparse(node) for node in imports) else ():
        if isinstance(node, ast.FunctionDef) and not node.decorator_list and not node.name.startswith("_"):
            parameters = node.args
            needs = (
                len(parameters.posonlyargs) + len(parameters.args) > len(parameters.defaults)
                or None in parameters.kw_defaults
            )
            if not needs and any(map(_is_workload, _results(node))):
                yield node.name


def _results(function: ast.FunctionDef) -> Iterator[ast.expr]:
    """Yield the annotation of what a function returns, and each class or function whose result it returns."""
    if function.returns is not None:
        yield function.returns
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Call):
            yield node.value.func


def _is_workload(node: ast.expr) -> bool:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    text = node.value if isinstance(node, ast.Constant) else name
    return str(text).rpartition(".")[2] == "Workload"


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Yield the functions where pytest looks for tests: of the module, and of its classes called Test..."""
    for node in tree.body:
        is_group = isinstance(node, ast.ClassDef) and node.name.startswith("Test")
        members = node.body if isinstance(node, ast.ClassDef) and is_group else [node]
        yield from (member for member in members if isinstance(member, ast.FunctionDef))


def _is_benchmark(function: ast.FunctionDef) -> bool:
    parameters = function.args
    arguments = (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs)
    return function.name.startswith("test") and "benchmark" in [argument.arg for argument in arguments]


def _has_build(path: Path) -> bool:
    with suppress(OSError, ValueError):
        return bool({"project", "build-system"} & read_toml(path).keys())
    return False


def _named(factories: Iterable[str]) -> dict[str, str]:
    """Factories by the names of their benchmarks, which are distinct."""
    named: dict[str, str] = {}
    for number, factory in enumerate(factories, start=1):
        name = re.sub("[^a-z0-9]+", "_", factory.lower()).strip("_") or "step"
        named[f"{name}_{number}" if name in named else name] = factory
    return named


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
