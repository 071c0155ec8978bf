from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbench.cases.case import Case
from dpbench.cases.machine_info import Accelerator, MachineInfo
from dpbench.cases.names import format_devices
from dpbench.cases.plan import Plan, default_lanes, plan, round_order
from dpbench.cases.spec import from_options
from dpbench.cases.variants import VariantName
from dpbench.errors import WrongInputError


def machine(
    gpus: int = 0, kind: str = "cuda", backends: tuple[str, ...] = ("gloo", "nccl"), **facts: object
) -> MachineInfo:
    accelerators = [Accelerator(device=f"{kind}:{i}", name="a GPU", memory_bytes=2**34) for i in range(gpus)]
    usual = {"python": "3.11.9", "torch": "2.13.0", "cpu_model": "a CPU", "cores": 4, "memory_bytes": 2**33}
    return MachineInfo.model_validate({**usual, "backends": backends, "accelerators": accelerators, **facts})


def planned(machine: MachineInfo, **options: str) -> Plan:
    return plan(from_options({"workloads": "mlp/tiny", **options}), machine)


def short(cases: tuple[Case, ...]) -> list[str]:
    return [f"{case.variant} b{case.batch} {format_devices(case.devices)}" for case in cases]


def reasons(plan: Plan) -> Mapping[str, str]:
    return {case: skip.reason for skip in plan.skipped for case in short((skip.case,))}


def test_without_an_accelerator_all_but_the_stock_one_run_and_single_is_the_yardstick() -> None:
    result = planned(machine(), devices="cpu*2")
    assert short(result.cases) == [
        "single b64 cpu",
        "naive b64 cpu*2",
        "floor b64 cpu*2",
        "tuned b64 cpu*2",
        "ddp b64 cpu*2",
    ]
    assert reasons(result) == {
        "torch_dp b64 cpu*2": "torch.nn.DataParallel needs an accelerator for every lane, and this machine has none"
    }


def test_distinct_devices_get_the_largest_chunk_on_the_first_as_their_limit() -> None:
    result = planned(machine(gpus=3), devices="cuda*3", variants="torch_dp,tuned,ddp")
    assert short(result.cases) == [
        "torch_dp b64 cuda:0+cuda:1+cuda:2",
        "tuned b64 cuda:0+cuda:1+cuda:2",
        "ddp b64 cuda:0+cuda:1+cuda:2",
        "single b22 cuda:0",
    ]
    assert result.skipped == ()


def test_single_always_is_one_device_and_no_case_is_there_twice() -> None:
    result = planned(machine(), devices="cpu*2,cpu*4,cpu", variants="single,tuned")
    assert short(result.cases) == ["single b64 cpu", "tuned b64 cpu*2", "tuned b64 cpu*4", "tuned b64 cpu"]


def test_the_grid_is_ordered_by_workload_mode_dtype_devices_and_batch() -> None:
    result = planned(
        machine(),
        variants="naive",
        workloads="mlp/tiny,convnet/tiny",
        modes="train,infer",
        dtypes="float32,float64",
        devices="cpu*4,cpu*2",
        batch="64,32",
    )
    rows = [(c.workload, c.mode, c.dtype, len(c.devices), c.batch) for c in result.cases if c.variant == "naive"]
    workloads, modes, dtypes = ("mlp/tiny", "convnet/tiny"), ("train", "infer"), ("float32", "float64")
    assert rows == [(w, m, t, n, b) for w in workloads for m in modes for t in dtypes for n in (4, 2) for b in (64, 32)]


def test_cases_carry_threads_seed_and_data() -> None:
    result = planned(machine(), variants="tuned", devices="cpu*2", threads="3", seed="9", data="digits")
    assert {(c.threads, c.seed, c.data) for c in result.cases} == {(3, 9, "digits")}
    assert {c.threads for c in planned(machine(cores=7), variants="tuned").cases} == {7}


@pytest.mark.parametrize(
    ("here", "devices", "skipped"),
    [
        (machine(), "cpu*2", "torch_dp"),
        (machine(gpus=1), "cpu*2", "torch_dp"),
        (machine(gpus=1), "cpu+cuda:0", "torch_dp,ddp"),
        (machine(gpus=1), "cuda:0*2", "ddp"),
        (machine(gpus=2), "cuda*2", ""),
        (machine(gpus=2, backends=("gloo",)), "cuda*2", "ddp"),
        (machine(backends=()), "cpu*2", "torch_dp,ddp"),
        (machine(gpus=1, kind="mps"), "mps:0", "ddp"),
        (machine(gpus=2, kind="xpu", backends=("xccl",)), "xpu*2", ""),
        (machine(gpus=2, kind="xpu"), "xpu*2", "ddp"),
    ],
)
def test_who_runs_on_which_lanes(here: MachineInfo, devices: str, skipped: str) -> None:
    result = planned(here, devices=devices, variants="torch_dp,naive,floor,tuned,ddp")
    assert ",".join(skip.case.variant for skip in result.skipped) == skipped
    assert {"naive", "floor", "tuned", "single"} <= {case.variant for case in result.cases}


@pytest.mark.parametrize(
    ("here", "devices", "variant", "reason"),
    [
        (
            machine(gpus=1),
            "cpu*2",
            "torch_dp",
            "torch.nn.DataParallel needs an accelerator for every lane, and cpu is none",
        ),
        (machine(gpus=1), "cuda:0*2", "ddp", "nccl allows one rank for each device, and these lanes share one"),
        (machine(gpus=1), "cpu+cuda:0", "ddp", "DistributedDataParallel needs devices of one kind, not cpu and cuda"),
        (machine(backends=()), "cpu*2", "ddp", "this torch has no gloo, which DistributedDataParallel needs on cpu"),
        (
            machine(gpus=2),
            "cuda:0*2",
            "tuned[route=nccl]",
            "route nccl needs CUDA devices, each in one lane, and a torch with nccl",
        ),
        (machine(gpus=1, kind="mps"), "mps:0", "ddp", "no backend of torch.distributed is known for mps"),
        (
            machine(),
            "sim*4",
            "tuned",
            "simulated devices have no times; `dpbench counts` counts what a step does on them",
        ),
    ],
)
def test_a_skip_says_why(here: MachineInfo, devices: str, variant: str, reason: str) -> None:
    assert [skip.reason for skip in planned(here, devices=devices, variants=variant).skipped] == [reason]


def test_where_nothing_parallel_runs_there_is_no_yardstick() -> None:
    assert planned(machine(), devices="sim*4").cases == ()
    assert planned(machine(), devices="cpu*2", variants="torch_dp").cases == ()
    assert short(planned(machine(gpus=2), devices="cuda*2", variants="single").cases) == ["single b64 cuda:0"]


@pytest.mark.parametrize(
    ("here", "options", "line"),
    [
        (
            machine(gpus=2),
            {"devices": "cuda:0+cuda:3"},
            "devices: 'cuda:3' of 'cuda:0+cuda:3' is not on this machine; allowed: cpu, cuda:0, cuda:1",
        ),
        (
            machine(),
            {"devices": "gpu*4"},
            "devices: 'gpu:0' of 'gpu*4' is not on this machine, did you mean 'cuda*4'?; allowed: cpu",
        ),
        (
            machine(),
            {"devices": "cpu*4", "batch": "64,3"},
            "batch: 3 is less than one item for each of the 4 lanes of 'cpu*4'; allowed: 4 and above",
        ),
        (machine(), {"threads": "5"}, "threads: 5 is more than this machine's cores; allowed: 1 to 4"),
        (
            machine(workload_errors={"a.b:c": "no module named 'a'"}),
            {"workloads": "a.b:c"},
            "workloads: 'a.b:c': no module named 'a'",
        ),
        (
            machine(workload_errors={"a.b:c": "data: 'digits' is not for a.b:c"}),
            {"workloads": "a.b:c"},
            "data: 'digits' is not for a.b:c",
        ),
        (
            machine(torch=None, torch_error="no module named 'torch'"),
            {},
            "torch: does not import here (no module named 'torch'); allowed: a Python with a working torch",
        ),
    ],
)
def test_what_this_box_cannot_do_is_one_line(here: MachineInfo, options: dict[str, str], line: str) -> None:
    with pytest.raises(WrongInputError) as caught:
        planned(here, **options)
    assert str(caught.value) == line


def test_a_factory_that_loads_is_planned() -> None:
    result = planned(machine(workload_errors={"a.b:c": None}), workloads="a.b:c", variants="tuned")
    assert {case.workload for case in result.cases} == {"a.b:c"}


@pytest.mark.parametrize(
    ("here", "lanes"),
    [
        (machine(cores=2), "cpu*2"),
        (machine(cores=1), "cpu*2"),
        (machine(cores=64), "cpu*4"),
        (machine(gpus=1), "cuda:0*2"),
        (machine(gpus=3), "cuda:0+cuda:1+cuda:2"),
    ],
)
def test_the_lanes_of_a_box_that_was_not_told(here: MachineInfo, lanes: str) -> None:
    assert format_devices(default_lanes(here)) == lanes
    assert {c.devices for c in planned(here, variants="tuned").cases if c.variant.name is VariantName.TUNED} == {
        default_lanes(here)
    }


names = st.sampled_from(["single,tuned", "naive", "torch_dp,ddp,floor", "ddp,single"])
device_lists = st.sampled_from(["cpu", "cpu*2,cpu*4", "cuda*2,cuda:0*2,cpu*2", "sim*2,cuda:1", "cuda:1,cuda*2"])


@given(names, device_lists, st.sampled_from(["8", "8,16", "16,8,4"]), st.sampled_from(["train", "infer,train"]))
def test_plans_are_deterministic_without_doubles_and_have_every_yardstick(
    variants: str, devices: str, batch: str, modes: str
) -> None:
    options = {"variants": variants, "devices": devices, "batch": batch, "modes": modes}
    result = planned(machine(gpus=2), **options)
    ids = [case.id for case in result.cases]
    assert result == planned(machine(gpus=2), **options)
    assert len(set(ids)) == len(ids)
    assert not set(ids) & {skip.case.id for skip in result.skipped}
    assert all(len(case.devices) == 1 for case in result.cases if case.variant.name is VariantName.SINGLE)
    assert {limit_id(case) for case in result.cases if case.variant.name is not VariantName.SINGLE} <= set(ids)


def limit_id(case: Case) -> str:
    """The rule again, in its simplest form."""
    lanes = len(case.devices)
    shared = len(set(case.devices)) < lanes
    batch = case.batch if shared else -(-case.batch // lanes)
    return f"single|{case.workload}|b{batch}|{case.devices[0]}|{case.mode}|{case.dtype}|random|t{case.threads}|s0"


def test_each_round_has_every_case_once_in_an_order_of_its_own() -> None:
    cases = planned(machine(), devices="cpu*2", batch=",".join(map(str, range(2, 22)))).cases
    order = round_order(cases, rounds=4, seed=1)
    rounds = [[case for number, case in order if number == n] for n in range(4)]
    assert [number for number, _ in order] == sorted([0, 1, 2, 3] * len(cases))
    assert all(sorted(c.id for c in r) == sorted(c.id for c in cases) for r in rounds)
    assert len({tuple(c.id for c in r) for r in (*rounds, list(cases))}) == 5


def test_the_order_follows_from_seed_and_round_alone() -> None:
    cases = planned(machine(), devices="cpu*2", batch="8,16,32").cases
    assert round_order(cases, 2, seed=1) == round_order(cases, 5, seed=1)[: 2 * len(cases)]
    assert round_order(cases, 2, seed=1) != round_order(cases, 2, seed=2)


def test_a_compiled_scheme_is_held_against_a_single_that_is_compiled_alike() -> None:
    result = planned(machine(gpus=2), devices="cuda*2", variants="single[compile=default],tuned,ddp[compile=default]")
    assert short(result.cases)[3:] == ["single[compile=default] b32 cuda:0", "single b32 cuda:0"]
    shared = planned(machine(), devices="cpu*2", variants="tuned[compile=max-autotune]")
    assert short(shared.cases)[1:] == ["single[compile=max-autotune] b64 cpu"]


def test_what_cannot_be_compiled_has_a_reason() -> None:
    result = planned(
        machine(gpus=2),
        devices="cuda*2",
        variants="torch_dp[compile=default],naive[compile=default],ddp[bucket_cap_mb=0.5,compile=default]",
    )
    assert result.cases == ()
    assert [skip.reason.partition(" ")[0] for skip in result.skipped] == ["compile:"] * 3
