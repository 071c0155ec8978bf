"""Run the tests on the stand-in, on 1, 2, 4 and 8 devices. `make cuda-tests` calls this.

    python tests/on_cuda/run.py VENV [--devices 1,2,4,8] [--only NAME,NAME] [ARGUMENT OF PYTEST...]

Exit codes: 0 all passed, 1 some failed, 2 wrong input.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
OPTIONS = ("-o", "python_files=cuda_*.py test_*.py", "-q", "-rsP", "--durations=5")
PLUGINS = ("-p", "tests.cuda_stand_in.plugin", "-p", "no:xdist", "-p", "no:cacheprovider")
HERE, STAND_IN = "tests/on_cuda", "tests/cuda_stand_in"
SUITES = {
    "runtime": (f"{STAND_IN}/cuda_runtime.py",),
    "graphs": (f"{STAND_IN}/cuda_graphs.py",),
    "graphed": (f"{HERE}/cuda_graphed.py",),
    "graphs everywhere": ("-p", "tests.on_cuda.graphs_everywhere", "tests/gpu"),
    "wrapper": ("tests/gpu/test_several.py",),
    "compiled": ("tests/gpu/test_compiled.py",),
    "peers": (f"{HERE}/cuda_peers.py",),
    "peer limit": (f"{HERE}/cuda_peer_limit.py",),
    "probe": (f"{HERE}/cuda_probe.py",),
    "sanitizer": (f"{HERE}/cuda_sanitizer.py",),
    "forgotten waits": (f"{HERE}/cuda_forgotten_waits.py",),
    "interrupts": (f"{HERE}/cuda_interrupts.py",),
    "counts": (f"{HERE}/cuda_counts.py",),
    "memory": (f"{HERE}/cuda_memory.py",),
    "compare": (f"{HERE}/cuda_compare.py",),
    "machine file": ("tests/gpu/test_machine_file.py",),
    "gpu": ("tests/gpu",),
    "rehearsal": (f"{HERE}/cuda_rehearsal.py",),
}
"""A file or folder for each, in a process of its own."""
UNASKED = [name for name in SUITES if name != "rehearsal"]
"""The rehearsal has tests/gpu in it, and takes many minutes more: ``--only rehearsal``."""
ON = {
    "graphs everywhere": {1, 2},
    "gpu": {1},
    "wrapper": {2, 4, 8},
    "compiled": {2, 4},
    "interrupts": {2, 4},
    "memory": {4},
    "peer limit": {4},
    "probe": {4},
    "sanitizer": {1},
    "compare": {2, 4},
    "machine file": {2, 4},
    "rehearsal": {2},
}
"""The numbers of devices of a suite that does not run on all. tests/gpu uses one device, but for `wrapper`."""
NOTHING_TO_RUN = 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("venv", type=Path)
    parser.add_argument("--devices", default="1,2,4,8")
    parser.add_argument("--only", default=",".join(UNASKED))
    options, further = parser.parse_known_args()
    counts = options.devices.split(",")
    if not all(count.isdigit() and 0 < int(count) <= 64 for count in counts):
        parser.error(f"--devices: '{options.devices}' is not allowed; allowed: numbers from 1 to 64, such as 1,2,4,8")
    wanted = options.only.split(",")
    if not set(wanted) <= set(SUITES):
        parser.error(f"--only: '{options.only}' is not allowed; allowed: {', '.join(SUITES)}, with commas between them")
    failed, ran = [], 0
    for count in map(int, counts):
        for name, arguments in SUITES.items():
            if name not in wanted or count not in ON.get(name, {count}):
                continue
            ran += 1
            print(f"== {name} on {count} devices", flush=True)  # noqa: T201
            if run(options.venv, count, [*arguments, *further]) not in (0, NOTHING_TO_RUN):
                failed.append(f"{name} on {count}")
    if not ran:
        parser.error(f"--only: '{options.only}' has no tests for {options.devices} devices")
    print("failed: " + ", ".join(failed) if failed else "all passed")  # noqa: T201
    return 1 if failed else 0


def run(venv: Path, devices: int, arguments: list[str]) -> int:
    environment = {**os.environ, "DPBENCH_CUDA_DEVICES": str(devices), "OMP_NUM_THREADS": "1"}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    command = [venv / "bin/python", "-m", "pytest", *PLUGINS, *OPTIONS, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
