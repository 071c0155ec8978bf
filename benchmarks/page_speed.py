"""Seconds that `dpbench report` takes for many records, and the size of its page.

    python -m benchmarks.page_speed [--records 10000,100000] [--folder DIR]

Records of 8 GPUs have the telemetry of each; records of CPU lanes have none. All have phases and 20 samples. With
--folder the records and pages are kept there.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import islice, product
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.about import heading
from benchmarks.store_speed import MACHINE, METRICS, record, spec_of_1000
from dpbench.results.device_summary import TELEMETRY
from dpbench.results.readings import DeviceTelemetry, Reading
from dpbench.results.record import Record, to_line
from dpbench.sweep.case import Case
from dpbench.sweep.plan import plan

_GPUS = tuple(f"cuda:{number}" for number in range(8))
_MOST_OF_GPUS = 80_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", default="10000,100000", help="numbers of records")
    parser.add_argument("--folder", type=Path, help="folder to keep the records and pages in")
    options = parser.parse_args()
    print(heading("benchmarks.page_speed"))
    with TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        for many, kind in product(map(int, options.records.split(",")), ("lanes", "gpus")):
            if kind == "gpus" and many > _MOST_OF_GPUS:
                print(f"{many:,} records of 8 GPUs: left out, because dpbench reads no file of more than 1 GiB")
            else:
                _time(folder / f"{kind}-{many}.jsonl", many, kind)


def _time(path: Path, many: int, kind: str) -> None:
    cases = plan(spec_of_1000(), MACHINE).cases
    if kind == "gpus":
        cases = tuple(each.model_copy(update={"devices": _GPUS}) for each in cases if len(each.devices) == 2)
    made = (_record(case, number, kind) for number, case in product(range(many // len(cases) + 1), cases))
    with path.open("wb") as file:
        file.writelines(map(to_line, islice(made, many)))
    page = path.with_suffix(".html")
    wall_s, cpu_s = _report(path, page)
    print(
        f"{many:,} records of {'8 GPUs' if kind == 'gpus' else 'CPU lanes'}, {path.stat().st_size / 1e6:,.0f} MB: "
        f"{wall_s:.1f} s, {cpu_s:.1f} s of it on the CPU, a page of {page.stat().st_size / 1e6:.1f} MB"
    )


def _record(case: Case, number: int, kind: str) -> Record:
    found = record(case, number)
    if kind == "lanes":
        return found
    telemetry = {gpu: _telemetry(gpu, number) for gpu in _GPUS}
    memory = {gpu: Reading(value=2.0**33 + number) for gpu in _GPUS}
    own = {"telemetry": telemetry, "peak_device_bytes": memory, "peak_reserved_bytes": memory}
    return found.model_copy(update={"metrics": METRICS.model_copy(update=own)})


def _telemetry(gpu: str, number: int) -> DeviceTelemetry:
    readings = {name: Reading(value=50.0 + number, source="nvml") for name in TELEMETRY}
    throttled = {name: Reading(value=0.0) for name in ("power", "thermal", "board")}
    return DeviceTelemetry(uuid=f"GPU-{gpu}", window_s=2.0, throttled_s=throttled, **readings)


def _report(path: Path, page: Path) -> Sequence[float]:
    """Return the wall and the CPU seconds of the command."""
    before, start_s = os.times(), time.perf_counter()
    command = [sys.executable, "-m", "dpbench", "report", str(path), "--output", str(page)]
    subprocess.run(command, check=True, capture_output=True)
    wall_s, after = time.perf_counter() - start_s, os.times()
    return wall_s, sum(after[2:4]) - sum(before[2:4])


if __name__ == "__main__":
    main()
