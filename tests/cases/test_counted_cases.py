"""Which cases are counted, and where."""

import pytest

from dpbench.cases.counted_cases import checked_cases, plan_beside, plan_counts, plan_recording
from dpbench.cases.spec import Spec
from dpbench.errors import WrongInputError

SIM2 = ("sim:0", "sim:1")
CPU2 = ("cpu", "cpu")


def spec(**keys):
    return Spec.model_validate({"workloads": ["mlp/tiny"], "batch": [8], "devices": ["sim*2"], **keys})


def places(plan):
    return {(str(case.variant), case.devices) for case in plan.cases}


def test_simulated_devices_have_a_twin_on_cpu_lanes_for_what_runs_there():
    plan = plan_counts(spec(variants=["torch_dp", "naive", "tuned", "ddp"]))
    assert places(plan) == {
        ("torch_dp", SIM2),
        ("naive", SIM2),
        ("naive", CPU2),
        ("tuned", SIM2),
        ("tuned", CPU2),
        ("ddp", CPU2),
    }
    assert plan.skipped == ()


def test_the_stock_wrapper_alone_has_nothing_to_count_on_cpu_lanes():
    plan = plan_counts(spec(variants=["torch_dp", "naive"], devices=["cpu*2"]))
    assert places(plan) == {("naive", CPU2)}
    assert [(skip.case.variant, "sim*n" in skip.reason) for skip in plan.skipped] == [("torch_dp", True)]


@pytest.mark.parametrize("variant", ["tuned[route=nccl]"])
def test_route_nccl_is_counted_nowhere(variant):
    plan = plan_counts(spec(variants=["naive", variant]))
    assert {name for name, _ in places(plan)} == {"naive"}
    assert [(str(skip.case.variant), "route nccl" in skip.reason) for skip in plan.skipped] == [(variant, True)]


def test_single_is_counted_on_one_device():
    assert places(plan_counts(spec(variants=["single"]))) == {("single", ("sim:0",)), ("single", ("cpu",))}


def test_each_precision_is_counted():
    plan = plan_counts(spec(variants=["tuned"], dtypes=["float32", "autocast-bfloat16"]))
    assert [(case.devices, case.dtype) for case in plan.cases] == [
        *[(place, "float32") for place in (SIM2, CPU2)],
        *[(place, "autocast-bfloat16") for place in (SIM2, CPU2)],
    ]


def test_no_case_comes_twice():
    cases = plan_counts(spec(devices=["sim*2", "cpu*2"])).cases
    assert len(set(cases)) == len(cases)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"devices": ["sim*65"], "batch": [80]}, ["sim:64", "sim:0 to sim:63"]),
        ({"devices": ["cuda:0*2"]}, ["cuda:0*2", "sim*n, or cpu*n"]),
        ({"devices": ["sim:0+cpu"]}, ["sim:0+cpu", "sim*n, or cpu*n"]),
        ({"devices": ["sim*9"]}, ["batch", "8", "9 and above"]),
    ],
)
def test_what_cannot_be_counted_is_named_with_what_can(keys, words):
    with pytest.raises(WrongInputError) as caught:
        plan_counts(spec(**keys))
    assert all(word in str(caught.value) for word in words)


def test_a_recording_is_of_one_case_on_simulated_devices():
    assert places(plan_recording(spec(variants=["naive"]))) == {("naive", SIM2)}
    for keys in ({"variants": ["naive", "tuned"]}, {"variants": ["ddp"]}, {"variants": ["naive"], "batch": [8, 16]}):
        with pytest.raises(WrongInputError, match=r"events: .*allowed: one variant"):
            plan_recording(spec(**keys))


def test_beside_times_the_default_variants_are_counted_on_as_many_devices():
    wanted = spec(variants=["naive", "ddp", "floor"], devices=["cpu*2"], workloads=["mlp/small", "convnet/base"])
    plan = plan_beside(wanted, [("cpu",), CPU2, CPU2])
    assert places(plan) == {("naive", SIM2), ("naive", CPU2)}
    assert {case.workload for case in plan.cases} == {"mlp/small"}


def test_beside_times_variants_with_parameters_are_counted_too():
    plan = plan_beside(spec(variants=["tuned[dispatch=threads]", "naive", "ddp[bucket_cap_mb=1]"]), [CPU2])
    assert [(str(case.variant), case.devices) for case in plan.cases] == [
        ("naive", SIM2),
        ("naive", CPU2),
        ("tuned[dispatch=threads]", SIM2),
        ("tuned[dispatch=threads]", CPU2),
    ]


def test_beside_times_of_one_lane_nothing_is_counted():
    assert plan_beside(spec(), [("cpu",)]).cases == ()
    assert plan_beside(spec(variants=["ddp"]), [CPU2]).cases == ()


def test_the_checked_set_has_every_family_each_variant_calls_and_collectives():
    cases = checked_cases()
    assert len(set(cases)) == len(cases)
    on_sim = {(str(case.variant), case.workload) for case in cases if case.devices[0] == "sim:0"}
    families = {"mlp", "convnet", "transformer", "embedding", "embedding_sparse"}
    assert on_sim == {(v, f"{family}/tiny") for v in ("torch_dp", "naive", "tuned") for family in families}
    assert {str(case.variant) for case in cases if case.devices == ("cpu",) * 4} == {"naive", "tuned"}
    assert sum(case.variant == "ddp" for case in cases) == 2


def test_a_compiled_variant_is_counted_on_cpu_lanes_alone():
    compiled = "tuned[compile=default]"
    plan = plan_counts(spec(variants=["tuned", compiled]))
    assert {name for name, _ in places(plan)} == {"tuned"}
    assert [skip.reason for skip in plan.skipped] == [
        "compile: simulated devices run no compiled code; cpu*n and accelerators are allowed"
    ]
    assert places(plan_counts(spec(variants=[compiled], devices=["cpu*2"]))) == {(compiled, CPU2)}
