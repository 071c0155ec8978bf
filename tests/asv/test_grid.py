import pytest

from dpbench.asv.grid import MORE_DTYPES, MORE_VARIANTS, case_of, grid, place, spaced
from dpbench.cases.machine_info import Accelerator, MachineInfo

CPU_MACHINE = MachineInfo(
    python="3.11", torch="2.13.0", cpu_model="a CPU", cores=4, memory_bytes=2**30, backends=("gloo",)
)


def gpu_machine(count):
    gpus = tuple(Accelerator(device=f"cuda:{i}", name="GPU", memory_bytes=2**30) for i in range(count))
    return CPU_MACHINE.model_copy(update={"accelerators": gpus, "backends": ("gloo", "nccl")})


def test_the_users_variants_join_the_grid(monkeypatch):
    (ours, *_) = grid()
    monkeypatch.setenv(MORE_VARIANTS, "mine:wrap[chunks=4,deep=true], tuned")
    assert grid()[0] == (*ours, "mine:wrap[chunks=4,deep=true]")
    case = case_of("mine:wrap[chunks=4,deep=true]", "mlp/small", 64, 2, CPU_MACHINE)
    assert (case.variant, case.workload, case.batch) == ("mine:wrap[chunks=4,deep=true]", "mlp/small", 64)
    assert (case.devices, case.threads) == (("cpu", "cpu"), CPU_MACHINE.cores)


def test_further_precisions_repeat_the_workloads(monkeypatch):
    workloads = grid()[1]
    monkeypatch.setenv(MORE_DTYPES, "autocast-bfloat16, bfloat16")
    assert grid()[1][: len(workloads) + 1] == (*workloads, "mlp/small autocast-bfloat16")
    assert len(grid()[1]) == 3 * len(workloads)
    case = case_of("tuned", "mlp/small autocast-bfloat16", 64, 2, CPU_MACHINE)
    assert (case.workload, case.dtype) == ("mlp/small", "autocast-bfloat16")
    assert case_of("tuned", "mlp/small", 64, 2, CPU_MACHINE).dtype == "float32"
    monkeypatch.setenv(MORE_DTYPES, "float8")
    with pytest.raises(ValueError, match="DPBENCH_DTYPES: 'float8' is no dtype; allowed: float32, float64"):
        grid()


@pytest.mark.parametrize(
    ("lanes", "accelerators", "devices"),
    [
        (2, [], ("cpu", "cpu")),
        (2, ["cuda:0"], ("cuda:0", "cuda:0")),
        (2, ["cuda:0", "cuda:1", "cuda:2"], ("cuda:0", "cuda:1")),
    ],
)
def test_lanes_have_their_own_devices_if_there_are_enough(lanes, accelerators, devices):
    assert place(lanes, accelerators, cores=2) == devices


@pytest.mark.parametrize(
    ("point", "machine", "reason"),
    [
        (("tuned", "mlp/small", 64, 8), CPU_MACHINE, "8 lanes are more than the 4 cores"),
        (("tuned", "mlp/small", 64, 4), gpu_machine(2), "4 lanes are more than the 2 accelerators"),
        (("tuned", "convnet/base", 64, 2), CPU_MACHINE, "convnet/base with batch 64 is for accelerators"),
        (("tuned", "mlp/small", 256, 2), CPU_MACHINE, "mlp/small with batch 256 is for accelerators"),
        (("torch_dp", "mlp/small", 64, 2), CPU_MACHINE, "needs an accelerator"),
        (("ddp", "mlp/small", 64, 2), gpu_machine(1), "one rank for each device"),
        (("tuned", "mlp/small", 64, 2), CPU_MACHINE.model_copy(update={"nvml_gpus": ("GPU",)}), "can use none"),
        (("tuned", "mlp/small", 64, 2), CPU_MACHINE.model_copy(update={"torch": None, "torch_error": "no"}), "no"),
    ],
)
def test_a_point_that_a_machine_cannot_measure_is_refused_with_the_reason(point, machine, reason):
    with pytest.raises(NotImplementedError, match=reason):  # asv skips the combination
        case_of(*point, machine)


def test_kept_samples_are_few_and_evenly_spaced():
    kept = spaced(range(1000))
    assert len(kept) == 63
    assert (kept[0], kept[-1]) == (0, 992)
    assert spaced((1.0, 2.0)) == (1.0, 2.0)
