"""`dpbench elastic` with each kind of fault but the kill: two runs, with several faults each."""

import json

import pytest

SMALL = ("--workload", "mlp/tiny", "--steps", 9, "--checkpoint-every", 2, "--hang-timeout", "6s", "--json")
NOTICED_WITHIN_S = 6 + 30
"""The time-out, and the end of the peer's process on a busy machine."""


def outages_of(run, plan):
    """Return the run's outages, after a look at what all of them have."""
    outages = run["outages"]
    assert [outage["fault"] for outage in outages] == plan.split(",")
    for outage in outages:
        assert set(outage["parts_s"]) == {"noticing", "stopping", "rendezvous", "start", "restore", "redone"}
        assert all(seconds >= 0 for seconds in outage["parts_s"].values())
        assert outage["redone_steps"] == 1
    return outages


@pytest.mark.exhaustive
@pytest.mark.timeout(500)
def test_a_failed_allocation_costs_no_bit_with_distributed_checkpoints(dpbench_process):
    plan = "oom@3:1"
    words = ("--batch", 8, "--checkpoint-format", "dcp", "--plan", plan, "--timeout", "6m")
    done = dpbench_process("elastic", *SMALL, *words, timeout_s=490)
    assert done.returncode == 0, done.stdout + done.stderr
    elastic = json.loads(done.stdout)["runs"][1]
    assert (elastic["outcome"], elastic["same_end"], elastic["loss_difference"]) == ("ok", True, 0)
    (oom,) = outages_of(elastic, plan)
    assert oom["rounds"] == 1


@pytest.mark.exhaustive
@pytest.mark.timeout(500)
def test_ranks_that_leave_and_join_change_the_loss_by_rounding_only(dpbench_process):
    plan = "leave@3:0,join@5,hang@7:1"
    words = ("--batch", 9, "--dtype", "float64", "--plan", plan, "--max-restarts", 9, "--timeout", "6m")
    done = dpbench_process("elastic", *SMALL, *words, timeout_s=490)
    assert done.returncode == 0, done.stdout + done.stderr
    _, elastic = json.loads(done.stdout)["runs"]
    assert elastic["outcome"] == "ok"
    assert elastic["loss_difference"] <= 1e-10
    hang = outages_of(elastic, plan)[2]
    assert 5 <= hang["parts_s"]["noticing"] <= NOTICED_WITHIN_S
