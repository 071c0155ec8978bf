"""`dpbench elastic` with each kind of fault: two runs, with several faults each."""

import json

import pytest

SMALL = ("--workload", "mlp/tiny", "--steps", 9, "--checkpoint-every", 2, "--hang-timeout", "6s", "--json")
ALL_PARTS = {"noticing", "stopping", "rendezvous", "start", "restore"}


@pytest.mark.timeout(400)
def test_hangs_and_failed_allocations_cost_no_bit_with_distributed_checkpoints(dpbench):
    plan = "oom@3:1,hang@5:0,stop@7:1"
    done = dpbench("elastic", *SMALL, "--batch", 8, "--backend", "dcp", "--plan", plan, timeout_s=390)
    assert done.returncode == 0, done.stdout + done.stderr
    elastic = json.loads(done.stdout)["runs"][1]
    assert (elastic["outcome"], elastic["same_end"], elastic["loss_difference"]) == ("ok", True, 0)
    oom, hang, stop = elastic["outages"]
    assert [outage["fault"] for outage in (oom, hang, stop)] == plan.split(",")
    for outage in (oom, hang, stop):
        assert set(outage["parts_s"]) == ALL_PARTS | {"redone"}
        assert outage["redone_steps"] == 1
        assert outage["rounds"] == 1
    assert oom["parts_s"]["noticing"] < 6
    for outage in (hang, stop):
        assert 5 <= outage["parts_s"]["noticing"] <= 6 + 10
    assert stop["parts_s"]["stopping"] >= 4  # SIGTERM does not end a stopped process; torchrun waits, then kills it


@pytest.mark.timeout(400)
def test_ranks_that_leave_and_join_change_the_loss_by_rounding_only(dpbench):
    plan = "leave@3:0,kill@5:0,join@7"
    words = ("--batch", 9, "--dtype", "float64", "--plan", plan, "--max-restarts", 6)
    done = dpbench("elastic", *SMALL, *words, timeout_s=390)
    assert done.returncode == 0, done.stdout + done.stderr
    _, elastic, wrapper = json.loads(done.stdout)["runs"]
    assert elastic["outcome"] == "ok"
    assert elastic["loss_difference"] <= 1e-10
    leave, kill, join = elastic["outages"]
    assert [outage["fault"] for outage in (leave, kill, join)] == plan.split(",")
    assert all(set(outage["parts_s"]) >= ALL_PARTS for outage in (leave, kill, join))
    assert all(outage["redone_steps"] == 1 for outage in (leave, kill, join))
    assert (wrapper["outcome"], wrapper["steps_done"]) == ("crashed", 3)
