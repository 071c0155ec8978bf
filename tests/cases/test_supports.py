"""What `ddp` and `fsdp` cannot do, and that torch itself refuses it."""

import pytest
import torch
from torch import nn

from dpbench.cases.case import Case
from dpbench.cases.names import parse_devices
from dpbench.cases.supports import why_not_accumulated, why_rank_unsupported


def reason(variant, devices="cpu*2", batch=8, workload="mlp/tiny", **fields):
    lanes = parse_devices(devices)
    return why_rank_unsupported(
        Case(variant=variant, workload=workload, batch=batch, devices=lanes, threads=1, **fields)
    )


@pytest.mark.parametrize(
    ("variant", "changes", "words"),
    [
        ("ddp[accumulate=2]", {"mode": "infer"}, "inference has none; mode train is allowed"),
        ("ddp[accumulate=5]", {}, "batch 8 has less than one item for each micro-batch of each lane; allowed: 10 and"),
        ("ddp[accumulate=2,static_graph=true]", {}, "one of the two is allowed"),
        ("ddp[sync_batchnorm=true]", {}, "torch.nn.SyncBatchNorm has no CPU version; accelerators are allowed"),
        ("ddp[hook=bf16]", {}, "NCCL and XCCL only, and CPU lanes use gloo; hook=fp16 is allowed"),
        ("ddp[hook=fp16]", {"workload": "embedding_sparse/tiny"}, "hook=none is allowed"),
        ("fsdp", {"workload": "embedding_sparse/tiny"}, "dense gradients are allowed"),
    ],
)
def test_what_does_not_run_has_a_reason_that_names_what_is_allowed(variant, changes, words):
    assert words in reason(variant, **changes)


@pytest.mark.parametrize(
    ("variant", "changes"),
    [
        ("ddp", {"mode": "infer", "workload": "embedding_sparse/tiny"}),
        ("ddp[accumulate=4]", {}),
        ("ddp[accumulate=1,static_graph=true]", {"mode": "infer"}),
        ("ddp[accumulate=2,static_graph=false]", {}),
        ("ddp[sync_batchnorm=true,hook=bf16]", {"devices": "cuda*2"}),
        ("ddp[sync_batchnorm=false,hook=none]", {"workload": "embedding_sparse/tiny"}),
        ("ddp[hook=fp16]", {"devices": "cuda*2", "workload": "embedding_sparse/tiny"}),
        ("fsdp", {"mode": "infer", "workload": "embedding_sparse/tiny"}),
    ],
)
def test_what_runs_has_none(variant, changes):
    assert reason(variant, **changes) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mode": "infer"}, "inference has none; mode train is allowed"),
        ({"batch": 7}, "less than one item for each micro-batch of each lane; allowed: 8 and"),
        ({}, None),
    ],
)
def test_accumulation_of_one_process_has_the_same_limits(changes, words):
    fields = {"variant": "tuned[accumulate=4]", "workload": "mlp/tiny", "batch": 8, "threads": 1}
    why = why_not_accumulated(Case(**{**fields, **changes}, devices=("cpu", "cpu")))
    assert why is None if words is None else words in why


def test_torch_has_no_sum_of_sparse_gradients_of_16_bits():
    sparse = torch.eye(2).half().to_sparse()
    with pytest.raises(NotImplementedError, match="not implemented for 'Half'"):
        (sparse + sparse).coalesce()


def test_torch_refuses_the_hook_bf16_and_synchronised_batch_norm_on_the_cpu(tmp_path):
    from torch import distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        if torch.version.cuda is None:
            scheme = DistributedDataParallel(nn.Linear(2, 2))
            with pytest.raises(TypeError, match="NCCL"):
                scheme.register_comm_hook(None, bf16_compress_hook)
        with pytest.raises(ValueError, match="SyncBatchNorm expected input tensor to be on GPU"):
            nn.SyncBatchNorm(2)(torch.ones(3, 2))
    finally:
        dist.destroy_process_group()
