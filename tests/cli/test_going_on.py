"""A sweep that goes on from records that failed, or that another machine made."""

import json

import pytest

MODEL = """
import dataclasses, os
from dpbench.workloads.resolve import resolve

PLAIN = resolve("mlp/tiny", "random")

def loss(output, target):
    if len(target) > 2 and os.path.exists("broken"):
        os.abort()
    return PLAIN.loss(output, target)

def factory():
    return dataclasses.replace(PLAIN, loss=loss)
"""


@pytest.fixture
def sweep(dpbench, tmp_path):
    """Call with options; the call returns the finished process and the records that there are then."""
    (tmp_path / "mine.py").write_text(MODEL)
    (tmp_path / "my.toml").write_text(
        'variants = ["single"]\nworkloads = ["mine:factory"]\nbatch = [16]\ndevices = ["cpu"]\n'
        "rounds = 2\ncase_time = 0.2\n"
    )

    def call(*options):
        done = dpbench("sweep", "my.toml", *options, "--json")
        lines = (tmp_path / "results/runs/sweep-my.jsonl").read_text().splitlines()
        return done, [json.loads(line) for line in lines]

    return call


def test_failed_records_are_measured_again_only_when_asked(sweep, tmp_path):
    (tmp_path / "broken").touch()
    done, first = sweep()
    assert done.returncode == 1, done.stderr
    assert [record["outcome"] for record in first] == ["crashed", "crashed"]
    (tmp_path / "broken").unlink()
    assert sweep()[1] == first
    done, again = sweep("--retry", "failed")
    assert done.returncode == 0, done.stderr
    assert [record["outcome"] for record in again] == ["ok", "ok"]
    assert {record["round"] for record in again} == {0, 1}
    kept = (tmp_path / "results/runs/sweep-my.jsonl.retried").read_text().splitlines()
    assert [json.loads(line) for line in kept] == first
    assert sweep("--retry", "failed")[1] == again  # nothing failed, nothing is measured again


@pytest.mark.exhaustive
def test_records_of_another_machine_are_refused_unless_allowed(sweep, tmp_path):
    _, (first, second) = sweep()
    second["environment"] |= {"hostname": "elsewhere", "torch": "2.9.0"}
    path = tmp_path / "results/runs/sweep-my.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in (first, second)))
    done, _ = sweep()
    assert done.returncode == 2
    assert "hostname" in done.stderr
    assert "elsewhere" in done.stderr
    assert done.stdout == ""
    done, _ = sweep("--allow-different")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert set(shown["differences"]) == {"hostname", "torch"}
    assert "2.9.0" in shown["differences"]["torch"]
    assert shown["cases"][0]["step_time_s"]["median"] > 0


def test_a_record_of_another_commit_is_refused_before_it_is_stored(sweep, tmp_path):
    _, (first, _) = sweep()
    first["environment"]["commit"] = "0" * 40
    path = tmp_path / "results/runs/sweep-my.jsonl"
    path.write_text(json.dumps(first) + "\n")
    done, kept = sweep()
    assert (done.returncode, done.stdout) == (2, "")
    assert "environment: the records differ in commit" in done.stderr
    assert kept == [first]


def test_a_sweep_that_is_complete_says_nothing_of_other_processes(sweep):
    sweep()
    assert json.loads(sweep()[0].stdout).get("other_load") is None
