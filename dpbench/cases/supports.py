"""Which variants a machine supports on which lanes."""

from collections.abc import Mapping

from dpbench.cases.case import Case
from dpbench.cases.devices import are_shared
from dpbench.cases.machine_info import MachineInfo
from dpbench.cases.names import Mode
from dpbench.cases.rank_options import why_not_accumulated, why_rank_unsupported
from dpbench.cases.variants import VariantName

_BACKEND = {"cpu": "gloo", "cuda": "nccl", "xpu": "xccl"}
_PER_RANK: Mapping[str, str] = {VariantName.DDP: "DistributedDataParallel", VariantName.FSDP: "fully_shard"}


def why_unsupported(case: Case, machine: MachineInfo) -> str | None:
    """Why this machine cannot measure the case, or None."""
    kinds = sorted({device.partition(":")[0] for device in case.devices})
    if "sim" in kinds:
        return "simulated devices have no times; `dpbench counts` counts what a step does on them"
    if case.variant.name is VariantName.TORCH_DP:
        return _why_unsupported_torch_dp(kinds, machine)
    if case.variant.is_per_rank:
        return _why_no_ranks(case, kinds, machine) or why_rank_unsupported(case)
    return _why_not_tuned(case, kinds, machine) or why_not_accumulated(case)


def _why_not_tuned(case: Case, kinds: list[str], machine: MachineInfo) -> str | None:
    if case.variant.former is not None:
        return f"the wrapper no longer has {case.variant.former}"
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
