"""Which options of `ddp` and `fsdp`, and which accumulation, run in which case, whatever the machine has."""

from collections.abc import Iterator

from dpbench.cases.case import Case
from dpbench.cases.names import Family, Mode
from dpbench.cases.variants import VariantName


def why_rank_unsupported(case: Case) -> str | None:
    """The first reason why a rank cannot do its work, or None."""
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
