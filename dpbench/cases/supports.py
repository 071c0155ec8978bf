"""Which variants run in which case: by their options, whatever the machine has, and on a machine's lanes."""

from collections.abc import Iterator, Mapping

from dpbench.cases.case import Case
from dpbench.cases.machine_info import MachineInfo
from dpbench.cases.names import Family, Mode, are_shared
from dpbench.cases.variants import VariantName


def why_rank_unsupported(case: Case) -> str | None:
    reasons = (*_of_static_graph(case), *_of_accumulation(case), *_of_sparse_gradients(case), *_of_cpu_lanes(case))
    return next(iter(reasons), None)


def why_not_accumulated(case: Case) -> str | None:
    """Why the variant, maybe of one process, cannot accumulate gradients, or None."""
    return next(_of_accumulation(case), None)


def _micro_batches(case: Case) -> int:
    return int(case.variant.values.get("accumulate", 1))


def _of_static_graph(case: Case) -> Iterator[str]:
    if _micro_batches(case) > 1 and case.variant.values.get("static_graph"):
        # "expect_autograd_hooks_ INTERNAL ASSERT FAILED" in torch/csrc/distributed/c10d/reducer.cpp, torch 2.13.0
        yield "with static_graph, no_sync fails in an assertion of torch's reducer; one of the two is allowed"


def _of_accumulation(case: Case) -> Iterator[str]:
    micro_batches = _micro_batches(case)
    least = micro_batches * len(case.devices)
    if micro_batches > 1 and case.mode is Mode.INFER:
        yield "it accumulates gradients, and inference has none; mode train is allowed"
    if case.batch < least:
        yield f"batch {case.batch} has less than one item for each micro-batch of each lane; allowed: {least} and above"


def _of_sparse_gradients(case: Case) -> Iterator[str]:
    if not case.workload.startswith(f"{Family.EMBEDDING_SPARSE}/") or case.mode is Mode.INFER:
        return
    if case.variant.name is VariantName.FSDP:
        yield "fully_shard cannot copy sparse gradients into its buffers; workloads with dense gradients are allowed"
    if _hook(case) != "none" and case.devices[0] == "cpu":
        # "cadd_sparse" not implemented for 'Half'
        yield "torch adds no sparse gradients of 16 bits on the CPU; hook=none is allowed"


def _of_cpu_lanes(case: Case) -> Iterator[str]:
    if case.devices[0] != "cpu":
        return
    if case.variant.values.get("sync_batchnorm"):
        yield "torch.nn.SyncBatchNorm has no CPU version; accelerators are allowed"
    if _hook(case) == "bf16":
        yield "torch allows this hook with NCCL and XCCL only, and CPU lanes use gloo; hook=fp16 is allowed"


def _hook(case: Case) -> str:
    return str(case.variant.values.get("hook", "none"))


_BACKEND = {"cpu": "gloo", "cuda": "nccl", "xpu": "xccl"}
_PER_RANK: Mapping[str, str] = {VariantName.DDP: "DistributedDataParallel", VariantName.FSDP: "fully_shard"}


def why_unsupported(case: Case, machine: MachineInfo) -> str | None:
    """Why this machine cannot measure the case, or None."""
    kinds = sorted({device.partition(":")[0] for device in case.devices})
    if "sim" in kinds:
        return "simulated devices have no times; `dpbench counts` counts what a step does on them"
    if reason := why_not_compiled(case):
        return reason
    if case.variant.name is VariantName.TORCH_DP:
        return _why_unsupported_torch_dp(kinds, machine)
    if case.variant.is_per_rank:
        return _why_no_ranks(case, kinds, machine) or why_rank_unsupported(case)
    return _why_not_tuned(case, kinds, machine) or why_not_accumulated(case)


def why_not_compiled(case: Case) -> str | None:
    """Why the variant cannot run compiled code here, or None."""
    name, values = case.variant.name, case.variant.values
    if case.variant.compile_mode is None:
        return None
    if case.devices[0].startswith("sim:"):
        return "compile: simulated devices run no compiled code; cpu*n and accelerators are allowed"
    if name in (VariantName.TORCH_DP, VariantName.NAIVE):
        # An OptimizedModule passes `_parameters = {}` of torch.nn.Module._replicate_for_data_parallel on to its model,
        # and Dynamo does not follow the threads in which torch.compile(DataParallel(model)) calls the replicas.
        return (
            f"compile: {name} takes the weights out of a compiled model, and its threads run compiled code eagerly; "
            "the other variants are allowed"
        )
    if name is VariantName.DDP and float(values.get("bucket_cap_mb", 1)) < 1:
        # AssertionError in torch/_dynamo/backends/distributed.py, torch 2.13: the first bucket has 1 MiB
        return "compile: torch cannot split graphs at buckets below 1 MiB; bucket_cap_mb=1 and above is allowed"
    return None


def _why_not_tuned(case: Case, kinds: list[str], machine: MachineInfo) -> str | None:
    if case.variant.has_loss_in_replicas and case.mode is Mode.INFER:
        return "it returns losses, and inference has none; mode train is allowed"
    if case.variant.values.get("graphs") and kinds != ["cuda"]:
        return "graphs need CUDA devices"
    return _why_no_nccl_route(case, kinds, machine) if case.variant.takes_nccl_route else None


def _why_no_nccl_route(case: Case, kinds: list[str], machine: MachineInfo) -> str | None:
    if kinds == ["cuda"] and "nccl" in machine.backends and not are_shared(case.devices):
        return None
    return "route nccl needs CUDA devices, each in one lane, and a torch with nccl"


def _why_unsupported_torch_dp(kinds: list[str], machine: MachineInfo) -> str | None:
    if "cpu" not in kinds:
        return None
    here = "this machine has none" if not machine.accelerators else "cpu is none"
    return f"torch.nn.DataParallel needs an accelerator for every lane, and {here}"


def _why_no_ranks(case: Case, kinds: list[str], machine: MachineInfo) -> str | None:
    what = _PER_RANK[case.variant.name]
    if len(kinds) > 1:
        return f"{what} needs devices of one kind, not {' and '.join(kinds)}"
    backend = _BACKEND.get(kinds[0])
    if backend is None:
        return f"no backend of torch.distributed is known for {kinds[0]}"
    if backend not in machine.backends:
        return f"this torch has no {backend}, which {what} needs on {kinds[0]}"
    if kinds[0] != "cpu" and are_shared(case.lanes_of_a_machine):
        # Since 2.5 NCCL refuses two ranks on one GPU: https://github.com/NVIDIA/nccl/issues/103
        return f"{backend} allows one rank for each device, and these lanes share one"
    return None
