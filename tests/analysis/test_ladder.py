"""One ladder from the comparisons of several device lists and machines."""

import pytest

from dpbench.analysis.compare_variants import compare
from dpbench.analysis.ladder import ladders
from dpbench.cases.plan import Skip
from tests.records.making import METRICS, case, ok


def on(variant, devices="cpu*2", machines=1, **fields):
    return case(variant, devices, **fields).model_copy(update={"machines": machines})


def rungs(records, skipped=()):
    (ladder,) = ladders(compare(records, skipped))
    return {rung.summary.case.variant: rung for rung in ladder.rungs}


TWO_MACHINES = [
    ok(on("single", "cpu"), 0, [0.04]),
    ok(on("tuned", "cpu*2"), 0, [0.05]),
    ok(on("ddp", "cpu*4", machines=2), 0, [0.025]),
]


def test_devices_of_their_own_count_each_and_have_a_limit():
    records = [
        ok(on("single", "cuda:0"), 0, [0.04]),
        ok(on("single", "cuda:0", batch=16), 0, [0.02]),
        ok(on("single", "cuda:0", batch=32), 0, [0.03]),
        ok(on("torch_dp", "cuda*2"), 0, [0.04]),
        ok(on("ddp", "cuda:0+cuda:1+cuda:0+cuda:1", machines=2), 0, [0.025]),
    ]
    by_variant = rungs(records)
    assert by_variant["torch_dp"].devices == 2
    assert by_variant["torch_dp"].efficiency_percent == pytest.approx(50)
    assert by_variant["torch_dp"].percent_of_limit == pytest.approx(75)
    assert by_variant["ddp"].devices == 4
    assert by_variant["ddp"].efficiency_percent == pytest.approx(40)
    assert by_variant["ddp"].percent_of_limit == pytest.approx(80)
    assert by_variant["single"].percent_of_limit is None
    assert len(by_variant) == 3  # the shares of one device are limits, not rungs


def test_without_one_device_there_is_no_efficiency_and_a_skipped_rung_stays():
    by_variant = rungs(TWO_MACHINES[1:], [Skip(on("torch_dp"), "no accelerator")])
    assert {rung.efficiency_percent for rung in by_variant.values()} == {None}
    assert by_variant["torch_dp"].summary.items_per_s is None


def test_skew_is_by_rank_and_by_machine():
    def ranked(machines):
        metrics = METRICS.model_copy(update={"skew_s": (0.3, 0.5), "rank_lag_s": (0.0, 0.1, 0.4, 0.2)})
        return ok(on("ddp", "cpu*4", machines=machines), 0, [0.2]).model_copy(update={"metrics": metrics})

    rung = rungs([ranked(2)])["ddp"]
    assert rung.rank_skew_s == pytest.approx(0.4)
    assert rung.machine_skew_s == pytest.approx(0.4 - 0.1)
    assert rungs([ranked(1)])["ddp"].machine_skew_s is None
    assert rungs(TWO_MACHINES)["ddp"].rank_skew_s is None


def test_one_process_alone_on_one_device_list_makes_no_ladder():
    assert ladders(compare(TWO_MACHINES[:2])) == ()
    four = ok(on("tuned", "cpu*4"), 0, [0.05])
    (ladder,) = ladders(compare([*TWO_MACHINES[:2], four]))
    assert [len(rung.summary.case.devices) for rung in ladder.rungs] == [1, 2, 4]


def test_each_workload_and_batch_has_a_ladder_of_its_own():
    other = [record.model_copy(update={"case": record.case.model_copy(update={"batch": 8})}) for record in TWO_MACHINES]
    assert [ladder.one_device.batch for ladder in ladders(compare([*TWO_MACHINES, *other]))] == [8, 64]


def test_nothing_measured_makes_no_ladder():
    assert ladders(compare([], [Skip(on("ddp"), "no gloo")])) == ()
