"""Run `dpbench elastic` many times, each with a fault of another seed, and report how many runs recovered.

python -m benchmarks.elastic_soak --runs 20 --output results/elastic-soak.md
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

_OPTIONS = ("--workload", "mlp/tiny", "--steps", "30", "--checkpoint-every", "5", "--faults", "kill", "--json")
_PARTS = ("noticing", "stopping", "rendezvous", "start", "restore", "redone")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    found: list[dict[str, Any]] = []
    for seed in range(options.runs):
        found.append(_one(seed))
        options.output.write_text(soak_page(found))
        print(f"seed {seed}: {found[-1]['outcome']}", flush=True)
    if not all(map(_recovered, found)):
        sys.exit(1)


def _one(seed: int) -> dict[str, Any]:
    """Return the elastic run of a command with this seed."""
    command = [sys.executable, "-m", "dpbench", "elastic", *_OPTIONS, "--seed", str(seed)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    runs = json.loads(done.stdout)["runs"] if done.stdout else []
    missing = {"outcome": "failed", "reason": done.stderr.strip(), "same_end": None, "outages": []}
    return next((run for run in runs if run["scheme"] == "elastic"), missing)


def _recovered(run: dict[str, Any]) -> bool:
    return run["outcome"] == "ok" and run["same_end"] is True


def soak_page(found: Sequence[dict[str, Any]]) -> str:
    """Return the page: a summary, and a row for each run."""
    lines = [
        "# Elastic runs with one killed worker each",
        "",
        f"`dpbench elastic {' '.join(_OPTIONS)} --seed N`, N from 0 to {len(found) - 1}.",
        f"{sum(map(_recovered, found))} of {len(found)} runs recovered with the undisturbed run's loss and parameters, "
        "to the last bit.",
        "Times are in seconds.",
        "",
        f"| fault | outcome | same end | outage | {' | '.join(_PARTS)} | unstamped | steps again |",
        f"|---|---|---|{'---|' * (len(_PARTS) + 3)}",
    ]
    lines += [_row(run) for run in found]
    outages = [outage for run in found for outage in run["outages"] if outage["outage_s"] is not None]
    if outages:
        cells = [_seconds(median(outage["outage_s"] for outage in outages))]
        cells += [_seconds(_median_of(outages, part)) for part in _PARTS]
        cells += [_seconds(median(outage["unstamped_s"] for outage in outages)), ""]
        lines.append(f"| median | | | {' | '.join(cells)} |")
    lines += [f"\n{run['outcome']}: `{run['reason']}`" for run in found if run["outcome"] != "ok"]
    return "\n".join(lines) + "\n"


def _row(run: dict[str, Any]) -> str:
    outage = next(iter(run["outages"]), None)
    if outage is None:
        return f"| - | {run['outcome']} | - |{' - |' * (len(_PARTS) + 3)}"
    parts = [_seconds(outage["parts_s"].get(part)) for part in _PARTS]
    cells = [outage["fault"], run["outcome"], "yes" if run["same_end"] else "no", _seconds(outage["outage_s"]), *parts]
    return f"| {' | '.join(cells)} | {_seconds(outage['unstamped_s'])} | {outage['redone_steps']} |"


def _median_of(outages: Sequence[dict[str, Any]], part: str) -> float | None:
    times_s = [outage["parts_s"][part] for outage in outages if part in outage["parts_s"]]
    return median(times_s) if times_s else None


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


if __name__ == "__main__":
    main()
