"""How often the gate is right on benchmarks that were written for asv and pytest-benchmark.

    python -m benchmarks.gate_foreign prepare|equal|injected|peers|table --output FILE [--folder FOLDER] [--suite NAME]

`prepare` fetches source distributions with pip, and makes a git repository of each: a base commit, one of equal code,
and one in which a loop takes 3 % of a function's time on this machine. `equal` and `injected` run a gate on each.
`peers` runs the framework's own comparison on both. Each run appends a line to FILE, so gates accumulate over days.
"""

import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from dpbench.engine.launch import launch
from dpbench.engine.wrapper_of import built_of, scratch_of
from dpbench.gate.sides import build

ROOT = Path(__file__).parents[1]
SHARE, PROBE_LOOPS = 0.03, 500
BUDGET, PEER_FACTOR = "5m", 1.1
PYTHON_LOOP, C_LOOP = "for _ in range({n}): pass", "for (volatile int i = 0; i < {n}; ++i) {{}}"


@dataclass(frozen=True)
class Suite:
    """The benchmarks to judge, and the line of `file` before which the loop is put."""

    requirement: str
    framework: str
    select: str
    file: str
    line: str
    loop: str
    build: str = "pip install --no-deps --target {folder} ."


SUITES = {
    "cattrs": Suite(  # a src layout
        requirement="cattrs==26.2.1",
        framework="pytest",
        select="bench/test_attrs_collections.py::test_structure_attrs_mappings",
        file="src/cattrs/converters.py",
        line="        return self._structure_func.dispatch(cl)(obj, cl)\n",
        loop=PYTHON_LOOP,
        build="pip install --target {folder} .",  # with attrs
    ),
    "rapidjson": Suite(  # compiled C++
        requirement="python-rapidjson==1.25",
        framework="pytest",
        select="benchmarks/test_benchmark.py::test_dumps_numbers",
        file="rapidjson.cpp",
        line="    if (writeMode == WM_COMPACT) {\n",
        loop=C_LOOP,
    ),
    "pywavelets": Suite(  # compiled Cython and C
        requirement="pywavelets==1.9.0",
        framework="asv",
        select=r"^dwt_benchmarks.Dwt2TimeSuite.time_dwt2\(256, ",
        file="pywt/_multidim.py",
        line="    coefs = dwtn(data, wavelet, mode, axes)\n",
        loop=PYTHON_LOOP,
    ),
}


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=dpbench", "-c", "user.email=dpbench@localhost", *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def prepare(suite: Suite, folder: Path) -> dict[str, object]:
    """Make the repository with tags base, equal and injected. Return what was calibrated."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    fetched, name = folder / "fetched", suite.requirement.partition("==")[0]
    options = ["--quiet", "--no-deps", "--no-binary", name, "--dest", str(fetched)]
    subprocess.run([sys.executable, "-m", "pip", "download", *options, suite.requirement], check=True)
    with tarfile.open(next(fetched.glob("*.tar.gz"))) as tar:
        tar.extractall(folder, filter="data")
    next(path for path in folder.iterdir() if path.is_dir() and path != fetched).rename(folder / "repository")
    repository = folder / "repository"
    (repository / "gate.toml").write_text(f"build = {json.dumps(suite.build)}\n")
    git(repository, "init", "--quiet")
    commit(repository, "base")
    (repository / "EQUAL.txt").write_text("This commit changes no code.\n")
    commit(repository, "equal")
    points, loops = [(0, 1.0)], PROBE_LOOPS
    while points[-1][1] < 1 + SHARE:
        inject(suite, repository, loops)
        commit(repository, f"probe{loops}")
        points.append((loops, fmean(gate(suite, folder, f"probe{loops}", "--tiers", "1")["ratios"].values())))
        loops *= 4
    (low, low_ratio), (high, high_ratio) = points[-2:]
    loops = round(low + (1 + SHARE - low_ratio) * (high - low) / (high_ratio - low_ratio))
    inject(suite, repository, loops)
    commit(repository, "injected")
    return {"loops": loops, "ratios_by_loops": points}


def inject(suite: Suite, repository: Path, loops: int) -> None:
    """Write the loop before the first such line, with its indentation."""
    path = repository / suite.file
    text, indent = path.read_text(), re.match(" *", suite.line)[0]
    assert suite.line in text, f"{suite.file} has no line {suite.line!r}"
    path.write_text(text.replace(suite.line, f"{indent}{suite.loop.format(n=loops)}\n{suite.line}", 1))


def commit(repository: Path, tag: str) -> None:
    git(repository, "add", "--all", "--force")
    git(repository, "commit", "--quiet", "-m", tag)
    git(repository, "tag", tag)
    git(repository, "checkout", "--quiet", "--detach", "base")


def built(suite: Suite, folder: Path, tag: str) -> Path:
    """A folder with the installed packages of a commit, as the gate builds them."""
    commit_folder = folder / "built" / tag
    if not built_of(commit_folder).is_dir():
        commit_folder.mkdir(parents=True)
        archive = subprocess.run(["git", "archive", tag], cwd=folder / "repository", check=True, capture_output=True)
        subprocess.run(["tar", "x", "-C", str(commit_folder)], input=archive.stdout, check=True)
        build(tag, commit_folder, suite.build, launch)
        shutil.rmtree(scratch_of(commit_folder))
    return built_of(commit_folder)


def gate(suite: Suite, folder: Path, head: str, *more: str) -> dict[str, Any]:
    words = ["--base", "base", "--base-exact", "--head", head, "--settings", "gate.toml", "--budget", BUDGET, "--json"]
    words += [f"--{suite.framework}", suite.select, "--results", str(folder / "results"), *more]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "dpbench", "gate", *words],
        cwd=folder / "repository",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode in (2, 3):
        raise SystemExit(done.stderr)
    judgement = json.loads(done.stdout)
    return {
        "tool": "gate",
        "verdict": judgement["verdict"],
        "why": judgement["why"],
        "ratios": {timed["benchmark"]: (timed["ratio"] or {}).get("value") for timed in judgement["times"]},
        "rounds": {timed["benchmark"]: timed["rounds"] for timed in judgement["times"]},
    }


def peer(suite: Suite, folder: Path, head: str) -> dict[str, object]:
    """Compare by the framework at its usual threshold."""
    if suite.framework == "pytest":
        shutil.rmtree(folder / "saved", ignore_errors=True)
        words = ["-p", "no:cacheprovider", "-p", "no:dpbench", f"--benchmark-storage={folder / 'saved'}", suite.select]
        run_peer(["pytest", *words, "--benchmark-save=base"], folder / "built/base", built(suite, folder, "base"))
        words += ["--benchmark-compare", f"--benchmark-compare-fail=mean:{PEER_FACTOR - 1:.0%}"]
        text = run_peer(["pytest", *words], folder / "built" / head, built(suite, folder, head))
        return {"tool": "pytest-benchmark", "verdict": "slower" if "Performance has regressed" in text else "pass"}
    (folder / "asv.conf.json").write_text(json.dumps(asv_config(suite, folder)))
    run_peer(["asv", "machine", "--yes"], folder, folder)
    words = ["--interleave-rounds", "--factor", str(PEER_FACTOR), "--bench", suite.select]
    text = run_peer(["asv", "continuous", *words, "base", head], folder, folder)
    return {"tool": "asv continuous", "verdict": "slower" if "PERFORMANCE DECREASED" in text else "pass"}


def run_peer(words: list[str], folder: Path, packages: Path) -> str:
    """Exits if the tool measured nothing."""
    environment = {**os.environ, "PYTHONPATH": str(packages), "HOME": str(folder)}  # asv writes a file there
    command = [sys.executable, "-P", "-m", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode and "PERFORMANCE" not in done.stdout and "Performance" not in done.stdout + done.stderr:
        raise SystemExit(f"{words[0]} failed: {done.stdout[-800:]}{done.stderr[-800:]}")
    return done.stdout + done.stderr


def asv_config(suite: Suite, folder: Path) -> dict[str, object]:
    """Each commit is built with pip in a virtual environment of asv's own."""
    return {
        "version": 1,
        "project": suite.requirement,
        "repo": str(folder / "repository"),
        "branches": ["HEAD"],
        "benchmark_dir": str(folder / "repository/benchmarks/benchmarks"),
        "environment_type": "virtualenv",
        "env_dir": str(folder / "asv-env"),
        "results_dir": str(folder / "asv-results"),
        "matrix": {"req": {"numpy": [""]}},
        "build_command": ["python -m pip wheel --no-deps -w {build_cache_dir} {build_dir}"],
    }


def table(output: Path) -> None:
    """Print how often each tool called equal and slower code slower."""
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    runs = [line for line in lines if line["kind"] != "prepare"]
    print("| suite | commit | tool | runs | slower | undecided | minutes each |\n|---|---|---|---:|---:|---:|---:|")
    for suite, kind, tool in sorted({(run["suite"], run["kind"], run["tool"]) for run in runs}):
        of = [run for run in runs if (run["suite"], run["kind"], run["tool"]) == (suite, kind, tool)]
        counts = [sum(run["verdict"] == verdict for run in of) for verdict in ("slower", "undecided")]
        minutes = sum(run["seconds"] for run in of) / len(of) / 60
        print(f"| {suite} | {kind} | {tool} | {len(of)} | {counts[0]} | {counts[1]} | {minutes:.1f} |")


def record(output: Path, name: str, kind: str, run: Callable[[], dict[str, object]]) -> None:
    start_s = time.monotonic()
    entry = {"suite": name, "kind": kind, "at": datetime.now(UTC).isoformat(timespec="seconds"), **run()}
    entry |= {"seconds": time.monotonic() - start_s, "host": socket.gethostname()}
    with output.open("a") as file:
        file.write(json.dumps(entry) + "\n")
    print(json.dumps(entry))


def main(words: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["prepare", "equal", "injected", "peers", "table"])
    parser.add_argument("--output", type=Path, required=True, help="JSON lines")
    parser.add_argument("--folder", type=Path, default=Path("build/foreign"), help="the repositories and builds")
    parser.add_argument("--suite", choices=SUITES, action="append", help="only this one; may be repeated")
    options = parser.parse_args(words if words is None else list(words))
    if options.action == "table":
        return table(options.output)
    for name in options.suite or SUITES:
        suite, folder = SUITES[name], options.folder.absolute() / name
        if options.action == "prepare":
            record(options.output, name, "prepare", lambda: prepare(suite, folder))  # noqa: B023  # called at once
        elif options.action == "peers":
            for head in ("equal", "injected"):
                record(options.output, name, head, lambda: peer(suite, folder, head))  # noqa: B023
        else:
            record(options.output, name, options.action, lambda: gate(suite, folder, options.action))  # noqa: B023
    return None


if __name__ == "__main__":
    main()
