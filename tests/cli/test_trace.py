"""`dpbench trace`: recorded and simulated in real children."""

import json

import pytest

from tests.simulated import needs_simulator
from tests.trace.trace_events import faults

SIMULATED = ("trace", "mlp/tiny", "--devices", "sim*2", "--variants", "naive,tuned", "--batch", "8")


@needs_simulator
def test_the_terminal_names_the_file_and_it_is_well_formed(call, tmp_path):
    code, out, err = call(*SIMULATED, "--output", "made/here")
    (events,) = (tmp_path / "made" / "here").glob("trace-*.perfetto.json")
    assert code == 0
    assert "naive: " in out
    assert "critical path, " in out
    assert "mlp/tiny on sim*2, batch 8" in out
    assert str(events.relative_to(tmp_path)) in err
    content = json.loads(events.read_text())
    assert faults(content) == []


@needs_simulator
def test_a_folder_that_cannot_be_written_is_one_line(call, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = call(*SIMULATED, "--output", "file/here")
    assert code == 2
    assert err.splitlines()[-1].startswith("dpbench: output: 'file/here' cannot be written: ")


def test_a_step_is_recorded_on_cpu_lanes(call, tmp_path):
    variants = "single,naive,tuned[dispatch=threads],ddp"
    words = ("trace", "mlp/tiny", "--devices", "cpu*2", "--variants", variants, "--json", "--output", "out")
    code, out, _ = call(*words)
    printed = json.loads(out)
    rows = {row["variant"]: row for row in printed["variants"]}
    assert (code, printed["source"], printed["title"]) == (0, "recorded", "mlp/tiny on cpu*2, batch 64")
    assert "one process for each device" in rows["ddp"]["reason"]
    for name in ("single", "naive", "tuned[dispatch=threads]"):
        row = rows[name]
        assert row["step_time_s"] > 0
        assert sum(part["share"] for part in row["critical_path"]) == pytest.approx(1)
        assert {part["phase"] for part in row["critical_path"]} == {"forward", "backward", "optimiser"}
        assert "as long as a step without a profiler" in row["notes"][0]
    assert list(rows["single"]["idle_shares"]) == ["main thread"]
    assert len(rows["naive"]["idle_shares"]) == 3
    assert len(rows["tuned[dispatch=threads]"]["idle_shares"]) >= 2
    assert {part["moved"] for part in rows["naive"]["critical_path"]} >= {"parameters", "gradients"}
    (events,) = (tmp_path / "out").glob("*.perfetto.json")
    assert faults(json.loads(events.read_text())) == []


def test_a_factory_that_fails_is_one_line(call, tmp_path):
    (tmp_path / "broken.py").write_text("def make():\n    raise RuntimeError('no data here')\n")
    code, _, err = call("trace", "broken:make", "--devices", "cpu*2", "--variants", "naive")
    assert code == 2
    assert "no data here" in err


@needs_simulator
def test_a_step_is_simulated_without_times(call, tmp_path):
    code, out, _ = call(*SIMULATED, "--output", "out")
    assert code == 0
    assert "Simulated: an order, no times." in out
    assert "units" in out
    (events,) = (tmp_path / "out").glob("*.perfetto.json")
    content = json.loads(events.read_text())
    assert faults(content) == []
    names = {event["args"]["name"] for event in content["traceEvents"] if event["name"] == "process_name"}
    assert names == {f"{name} (simulated): device {i}" for name in ("naive", "tuned") for i in (0, 1)}
