"""Hold the changes of `gate_plants.toml` against the gate, and print how often it answers rightly.

    python -m benchmarks.instruments.gate_plants [--only TEXT] [--whole] [--repeat N] [--budget 5m] [--output FILE]

Each plant and each opposite is a commit in a clone of HEAD. A plant that tier 0 must see is judged by `--tiers 0`, one
that shows in times alone by tier 1 of its benchmark; `--whole` is the gate of all tiers and benchmarks. The answer is
right if a plant is slower, and an opposite is not. A line of JSON is appended for each gate.
`tests/gate/test_gate_plants.py` counts the same list without whole gates.
"""

import argparse
import json
import os
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.instruments.about import heading

ROOT = Path(__file__).parents[2]
_WRAPPER = Path("dpbench/parallel")
_ANCHOR = "                check_not_capturing(self.src_device_obj)\n"
_SETTINGS = '[[benchmark]]\nname = "{name}"\nworkload = "{workload}"\nbatch = {batch}\ndevices = "cpu*4"\n{rest}'
_TIMED = {
    "launch_bound": ("mlp/tiny", 64, 'variant = "tuned[dispatch=sequence]"\nthreshold = "1.5%"\n'),
    "many_parameters": ("many/small", 16, 'threshold = "2%"\n'),
    "import": ("many/base", 16, 'timed = "import"\nthreshold = "15%"\n'),
}
RIGHT = {"plant": ("slower",), "opposite": ("pass", "faster")}


@dataclass(frozen=True)
class Code:
    """Lines in the wrapper's forward, and texts that are replaced in its files."""

    lines: Sequence[str] = ()
    edits: Sequence[dict[str, str]] = ()

    def write(self, folder: Path) -> None:
        """Change the wrapper in `folder`. Raises LookupError if a text is not there."""
        added = "".join(f"                {line}\n" for line in self.lines)
        anchored = {"file": "module.py", "old": _ANCHOR, "new": _ANCHOR + added}
        for edit in (anchored, *self.edits):
            path = folder / _WRAPPER / edit["file"]
            text = path.read_text()
            if edit["old"] not in text:
                raise LookupError(f"{edit['file']} has no {edit['old']!r}")
            path.write_text(text.replace(edit["old"], edit["new"], 1))


@dataclass(frozen=True)
class Plant:
    """A change that is slower, and its opposite. `base` is what base has instead of them."""

    kind: str
    name: str
    plant: Code
    opposite_name: str
    opposite: Code
    base: Code = field(default_factory=Code)
    cases: Sequence[str] = ()
    counter: str = ""
    timed: str = ""


def plants() -> list[Plant]:
    rows: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["plant"]
    return [
        Plant(
            kind=row["kind"],
            name=row["name"],
            plant=Code(row.get("lines", ()), row.get("edits", ())),
            opposite_name=row["opposite"],
            opposite=Code(row.get("opposite_lines", ()), row.get("opposite_edits", ())),
            base=Code(row.get("base_lines", ())),
            cases=row.get("cases", ()),
            counter=row.get("counter", ""),
            timed=row.get("timed", ""),
        )
        for row in rows
    ]


def gate(plant: Plant, head: Code, folder: Path, budget: str, is_whole: bool) -> dict[str, Any]:
    """Judge `head` in a new clone of HEAD, by all tiers if `is_whole`; return the JSON."""
    _git(ROOT, "clone", "--quiet", ROOT, folder)
    for code, message in ((plant.base, "base"), (head, "head")):
        _git(folder, "checkout", "--quiet", "HEAD" if message == "base" else "HEAD~1", "--", ".")
        code.write(folder)
        _git(folder, "commit", "--quiet", "--allow-empty", "--all", "-m", message)
    options = ["--tiers", "0,1" if is_whole else "0"]
    if plant.timed and not is_whole:
        workload, batch, rest = _TIMED[plant.timed]
        text = _SETTINGS.format(name=plant.timed, workload=workload, batch=batch, rest=rest)
        (folder / "plants.toml").write_text(text)
        options = ["--tiers", "1", "--settings", "plants.toml"]
    command = [
        sys.executable,
        "-P",
        "-m",
        "dpbench",
        "gate",
        "--base",
        "HEAD~1",
        "--json",
        "--budget",
        budget,
        *options,
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)
    judgement: dict[str, Any] = json.loads(done.stdout)
    return judgement


def _git(folder: Path, *words: object) -> None:
    named = ("-c", "user.name=plants", "-c", "user.email=plants@localhost")
    subprocess.run(["git", "-C", str(folder), *named, *map(str, words)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--budget", default="5m")
    parser.add_argument("--output", type=Path, default=ROOT / "results/gate/plants.jsonl")
    options = parser.parse_args()
    print(heading("benchmarks.instruments.gate_plants"))
    answers: Counter[tuple[str, str, str]] = Counter()
    for plant, role in [(plant, role) for _ in range(options.repeat) for plant in plants() for role in RIGHT]:
        is_plant = role == "plant"
        name, code = (plant.name, plant.plant) if is_plant else (plant.opposite_name, plant.opposite)
        if options.only not in f"{plant.kind}: {name}":
            continue
        with TemporaryDirectory() as folder:
            judgement = gate(plant, code, Path(folder) / "clone", options.budget, options.whole)
        verdict = judgement["verdict"]
        answers[plant.kind, role, verdict] += 1
        mark = " " if verdict in RIGHT[role] else "!"
        print(f"{mark} {plant.kind}: {role}: {name}: {verdict}: {judgement['why']}", flush=True)
        line = {"kind": plant.kind, "role": role, "name": name, "verdict": verdict, "why": judgement["why"]}
        line |= {"is_whole": options.whole, "load_average": os.getloadavg()[0]}
        with options.output.open("a") as file:
            file.write(json.dumps(line | {key: judgement[key] for key in ("duration_s", "started_at")}) + "\n")
    for (kind, role, verdict), count in sorted(answers.items()):
        print(f"| {kind} | {role} | {verdict} | {count} |")


if __name__ == "__main__":
    main()
