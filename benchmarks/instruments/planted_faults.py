"""Plant faults into the library, one at a time, and see whether the tests catch each.

    python -m benchmarks.instruments.planted_faults draw --count 40 --seed 1         # for planted_faults.toml
    python -m benchmarks.instruments.planted_faults check                        # each fault has one place
    python -m benchmarks.instruments.planted_faults control --output FILE        # the tests pass without a fault
    python -m benchmarks.instruments.planted_faults run --output FILE [--only NAME]

A fault is a text that is replaced in one function, so it is found again after code has moved to another file. `draw`
takes faults at random from all mutants of some rooms, so that nobody chooses. `control` and `run` work in a clone of
HEAD, and add a line of JSON for each fault: its outcome, and the first test that failed.
"""

import argparse
import ast
import json
import os
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory, TemporaryFile

import psutil

_ROOT = Path(__file__).parents[2]
_LIST = Path(__file__).with_suffix(".toml")
_TIMEOUT_S = 3000
COUNTS = "results/expected"
"""Among the tests of a fault, this stands for `dpbench counts --check`."""
_MARK = "DPBENCH_PLANTED"
"""A variable of the tests' processes. What still carries it afterwards is killed."""
ROOMS = {"parallel": 14, "measure": 8, "judge": 4, "gate": 8, "records": 3, "analysis": 3}
"""The rooms whose mutants are drawn, and how many of 40 come from each."""
_OPS = ("Lt", "LtE", "Gt", "GtE", "Eq", "NotEq", "Is", "IsNot", "In", "NotIn", "Add", "Sub", "Mult", "Div", "And", "Or")
_SWAPS = {name: getattr(ast, _OPS[i ^ 1]) for i, name in enumerate(_OPS)}


@dataclass(frozen=True)
class Fault:
    """`find` is replaced in the function or class `within`; `tests` are those that should fail."""

    name: str
    within: str
    find: str
    replace: str
    tests: Sequence[str]


def planted(fault: Fault, root: Path) -> tuple[Path, str]:
    """The file with the fault's place, and its text with the fault.

    Raises LookupError unless the text stands in one function of that name, and once in it. Raises SyntaxError.
    """
    places = []
    for path in sorted((root / "dpbench").rglob("*.py")):
        text = path.read_text()
        lines = text.split("\n")
        for node in ast.walk(ast.parse(text)) if fault.find in text else ():
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == fault.within:
                before, body = lines[: node.lineno - 1], "\n".join(lines[node.lineno - 1 : node.end_lineno])
                if body.count(fault.find) == 1:
                    new = body.replace(fault.find, fault.replace)
                    places.append((path, "\n".join([*before, new, *lines[node.end_lineno :]])))
    if len(places) != 1:
        raise LookupError(f"{fault.name}: {len(places)} places in {fault.within}")
    ast.parse(places[0][1])
    return places[0]


def mutants(path: Path) -> Iterator[tuple[str, str, str]]:
    """The function, the text of a statement or of its condition, and this text with one change."""
    text = path.read_text()
    for function in ast.walk(ast.parse(text)):
        for statement in ast.walk(function) if isinstance(function, ast.FunctionDef) else ():
            changed = getattr(statement, "test", statement)
            is_docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if not isinstance(statement, ast.stmt) or hasattr(changed, "body") or is_docstring:
                continue
            before = ast.get_source_segment(text, changed) or ""
            if isinstance(statement, ast.Expr):
                yield function.name, before, "pass"
            for node in ast.walk(changed):
                for field, other in _others(node):
                    value = getattr(node, field)
                    setattr(node, field, other)
                    yield function.name, before, ast.unparse(changed)
                    setattr(node, field, value)


def _others(node: ast.AST) -> Iterator[tuple[str, object]]:
    """A field of the node, and another value that it can have."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield "ops", [_SWAPS[type(node.ops[0]).__name__]()]
    elif isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op).__name__ in _SWAPS:
        yield "op", _SWAPS[type(node.op).__name__]()
    elif isinstance(node, ast.Constant) and type(node.value) in (int, bool):
        yield "value", not node.value if isinstance(node.value, bool) else node.value + 1


def draw(count: int, seed: int) -> Iterator[Fault]:
    """At random, so many from each room as `ROOMS` says of 40. Raise LookupError if a room has fewer."""
    rng = Random(seed)
    for room, share in ROOMS.items():
        every = [mutant for path in sorted((_ROOT / "dpbench" / room).rglob("*.py")) for mutant in mutants(path)]
        rng.shuffle(every)
        left = round(count * share / 40)
        for within, find, replace in every:
            if not left:
                break
            fault = Fault(f"{room}: drawn {left}: {within}", within, find, replace, [f"tests/{room}"])
            try:
                planted(fault, _ROOT)
            except (LookupError, SyntaxError):
                continue
            yield fault
            left -= 1
        if left:
            raise LookupError(f"dpbench/{room}: {left} faults too few")


def controls(faults: list[Fault]) -> list[Fault]:
    """For each file or folder of tests that the faults name, a text that is replaced by itself."""
    by_test = {test: fault for fault in reversed(faults) for test in fault.tests}
    return [Fault(f"control: {test}", one.within, one.find, one.find, [test]) for test, one in by_test.items()]


def run(fault: Fault, root: Path, catches: Counter[str]) -> dict[str, object]:
    """Plant the fault in the copy at `root`, run its tests until one fails, and take it out again."""
    begin_s, outcome, detail = time.monotonic(), "no test", ""
    try:
        path, text = planted(fault, root)
    except LookupError as error:
        return {"name": fault.name, "outcome": "not found", "seconds": 0, "detail": str(error)}
    before = path.read_text()
    try:
        path.write_text(text)
        for command in _commands(fault.tests, root, catches):
            outcome, detail = _outcome(command, root)
            if outcome != "passed":
                break
    finally:
        path.write_text(before)
    return {"name": fault.name, "outcome": outcome, "seconds": round(time.monotonic() - begin_s), "detail": detail}


def _commands(tests: Sequence[str], root: Path, catches: Counter[str]) -> Iterator[list[str]]:
    """Files with more `catches` come first: then most faults take seconds."""
    python, chosen = [sys.executable, "-P", "-m"], [root / test for test in tests]
    if COUNTS in tests:
        yield [*python, "dpbench", "counts", "--check"]
    simulated = ["-o", "python_files=sim_*.py", "-p", "tests.simulated_plugin"]  # what `tests/simulated.py` says
    for pattern, options in (("test_*.py", []), ("sim_*.py", simulated)):
        matching = [file for file in root.glob(f"tests/**/{pattern}") if any(map(file.is_relative_to, chosen))]
        if files := sorted((str(file.relative_to(root)) for file in matching), key=lambda name: (-catches[name], name)):
            yield [*python, "pytest", "-x", "-q", "-n", "2", "-p", "no:cacheprovider", *options, *files]


def _outcome(command: list[str], root: Path) -> tuple[str, str]:
    """Run the tests, kill what they leave behind, and return the outcome and the first failure."""
    # PYTHONPATH hides the editable install of this checkout, which pytest would import with dpbench's plugin.
    fixed = {"PYTHONPATH": str(root), _MARK: str(root), "CUDA_VISIBLE_DEVICES": "", "DPBENCH_TEST_SEED": "0"}
    environment = os.environ | fixed | {"OMP_NUM_THREADS": "1"}
    with TemporaryFile("w+") as output:
        process = subprocess.Popen(command, cwd=root, env=environment, stdout=output, stderr=output)
        try:
            status = process.wait(_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return "caught", "the tests hang"
        finally:
            for left in psutil.process_iter(["environ"]):
                if (left.info["environ"] or {}).get(_MARK) == str(root):
                    left.kill()
            process.wait()
        output.seek(0)
        lines = output.read().splitlines()
    failed = [line.partition(" ")[2] for line in lines if line.startswith(("FAILED", "ERROR"))]
    # 1: a test failed; 2: a file could not be collected; negative: a signal ended the tests
    outcome = "passed" if status == 0 else "caught" if status in (1, 2) or status < 0 else f"exit {status}"
    return outcome, "" if outcome == "passed" else (failed or lines or [""])[-1].partition(" - ")[0][:200]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instruments.planted_faults", description=__doc__)
    parser.add_argument("verb", choices=["draw", "check", "control", "run"])
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("results/planted-faults.jsonl"))
    parser.add_argument("--only", default="", help="a part of the name")
    options = parser.parse_args()
    if options.verb == "draw":
        for fault in draw(options.count, options.seed):
            print("\n[[fault]]", *(f"{key} = {json.dumps(value)}" for key, value in vars(fault).items()), sep="\n")
        return
    faults = [Fault(**row) for row in tomllib.loads(_LIST.read_text())["fault"]]
    if options.verb == "check":
        print(len([planted(fault, _ROOT) for fault in faults]), "faults have a place")
        return
    chosen = controls(faults) if options.verb == "control" else faults
    faults = [fault for fault in chosen if options.only in fault.name]
    with TemporaryDirectory(prefix="dpbench-planted-") as folder, options.output.open("a+") as file:
        root = Path(folder, "copy")
        subprocess.run(["git", "clone", "--quiet", str(_ROOT), str(root)], check=True)
        file.seek(0)
        catches = Counter(json.loads(line)["detail"].partition("::")[0] for line in file)
        for fault in faults:
            outcome = run(fault, root, catches)
            catches[str(outcome["detail"]).partition("::")[0]] += 1
            print(json.dumps(outcome), file=file, flush=True)
            print(outcome["outcome"], fault.name, flush=True)


if __name__ == "__main__":
    main()
