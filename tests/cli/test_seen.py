"""What is measured beside the times is shown, end to end: on the CPU, and with the fake NVML for GPUs."""

import json
import os
import subprocess
import sys

import pytest

from tests.cli.conftest import ROOT

QUICK = ("--workloads", "mlp/tiny", "--batch", "16", "--rounds", "1", "--budget", "2s")
FAKE_GPUS = f"{ROOT / 'tests/cli/fake_gpus'}:{ROOT}"
SWEEP = """
variants = ["naive", "tuned", "ddp"]
workloads = ["mlp/tiny"]
batch = [16]
rounds = 1
case_time = "1s"
"""


def below(text: str, title: str) -> dict[str, list[str]]:
    """Return the cells of the lines of the table or tables with this title, by the first cell."""
    lines = text.splitlines()
    table: dict[str, list[str]] = {}
    for number, line in enumerate(lines):
        if line.strip().startswith(title):
            for row in lines[number + 2 :]:
                if not row.strip():
                    break
                name, *cells = row.split()
                table.setdefault(name, []).extend(cells)
    return table


def test_figures_of_gpus_are_shown_and_json_has_each_by_device_and_phase(dpbench_process, tmp_path):
    (tmp_path / "my.toml").write_text(SWEEP)
    done = dpbench_process("sweep", "my.toml", "--details", PYTHONPATH=FAKE_GPUS, COLUMNS="80")
    assert done.returncode == 0, done.stderr
    assert all(len(line) <= 80 for line in done.stdout.splitlines() if not line.startswith("  dpbench compare"))
    rows = below(done.stdout, "devices")
    for variant in ("naive", "tuned"):
        assert rows[variant][:4] == ["cuda:0", "80.0", "80.0", "3.00"], done.stdout
    assert "500" in rows["tuned"]
    assert "cuda:1" in done.stdout
    assert "energy: nvmlDeviceGetTotalEnergyConsumption: Not Supported" in " ".join(done.stdout.split())
    phases = below(done.stdout, "phases, ms") or below(done.stdout, "phases, us")
    assert {"forward", "scatter", "backward", "reduce", "optimiser"} <= set(phases)

    told = json.loads(dpbench_process("report", "results/runs/sweep-my.jsonl", "--json").stdout)
    by_variant = {one["variant"]: one for one in told["machines"][0]["cases"] if one["step_time_s"]}
    tuned, ddp = by_variant["tuned"], by_variant["ddp"]
    busy, idle = tuned["by_device"]["cuda:0"], tuned["by_device"]["cuda:1"]
    assert (busy["sm_busy_percent"]["value"], idle["sm_busy_percent"]["value"]) == pytest.approx((80, 20), rel=0.01)
    assert busy["peak_device_bytes"]["value"] == 3 * 2**30
    assert busy["throttled_percent"]["value"] == pytest.approx(100, rel=0.1)
    assert busy["throttled_s"]["thermal"]["value"] > 0
    assert idle["energy_per_step_j"]["value"] is None
    assert "Not Supported" in idle["energy_per_step_j"]["reason"]
    assert tuned["phases_s"]["forward"]["value"] > 0
    assert (tuned["skew_s"], tuned["rank_lag_s"]) == (None, None)
    assert ddp["skew_s"]["value"] >= 0
    assert len(ddp["rank_lag_s"]) == 2
    assert tuned["peak_rss_bytes"]["value"] > 2**20


def test_on_cpu_lanes_phases_and_host_memory_are_shown(dpbench):
    done = dpbench("compare", *QUICK, "--variants", "naive,ddp", "--details", COLUMNS="80")
    assert done.returncode == 0, done.stderr
    assert all(len(line) <= 80 for line in done.stdout.splitlines() if not line.startswith("  dpbench compare"))
    assert {"variant", "naive", "ddp"} <= set(below(done.stdout, "devices"))
    assert "telemetry: there is telemetry of NVIDIA's GPUs alone" in " ".join(done.stdout.split())
    phases = below(done.stdout, "phases, ms") or below(done.stdout, "phases, us")
    assert {"forward", "scatter", "gather", "backward", "optimiser", "skew", "lag"} <= set(phases), done.stdout


def test_the_pytest_plugin_shows_the_same_figures(tmp_path):
    (tmp_path / "test_mine.py").write_text(
        "import time\ndef test_step(dp_benchmark):\n    dp_benchmark(lambda: time.sleep(0.02), rounds=20)\n"
    )
    # pytest imports its plugins by a finder of its own, so sitecustomize's finder does not see them.
    (tmp_path / "conftest.py").write_text(
        "import dpbench.measure.gpu.telemetry, dpbench.measure.memory, sitecustomize\n"
        "sitecustomize.fake_telemetry(dpbench.measure.gpu.telemetry)\n"
        "sitecustomize.fake_peaks(dpbench.measure.memory)\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "test_mine.py"]
    # Without the variables of this test's own xdist worker, under which pytest-benchmark measures nothing.
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = own | {"PYTHONPATH": FAKE_GPUS, "COLUMNS": "100"}
    done = subprocess.run(command, check=False, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    (row,) = (cells for name, cells in below(done.stdout, "devices").items() if name.startswith("test_mine.py"))
    assert row[:4] == ["cuda:0", "80.0", "80.0", "3.00"], done.stdout
