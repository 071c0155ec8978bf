"""What one lane's backward costs with gradients in place, and with today's packing, on one device of the stand-in.

    DPBENCH_CUDA_DEVICES=1 .venv-cuda/bin/python -m tests.cuda_stand_in.grads_in_place [WORKLOAD]

In place: the replica's weights are leaves, each ``.grad`` is a view of one flat that stays and is zeroed before each
step, and a hook after accumulation counts the bucket down. Packed: autograd returns each gradient, and a bucket's are
copied into a flat with one call when all are there; the flat is let go when it was sent, here at once.
"""

import sys

import torch
from torch import nn
from torch.autograd import Function

from benchmarks.about import heading
from dpbench.cases.names import Data
from dpbench.parallel.buckets import Item, byte_count_of, flat_count, plan_buckets, shape_of, shaped_views
from dpbench.parallel.policy import DEFAULT_POLICY
from dpbench.workloads.resolve import resolve
from tests.cuda_stand_in import control

ITEMS = 8


class Pack(Function):
    @staticmethod
    def forward(ctx, *weights):
        ctx.shapes = [shape_of(weight) for weight in weights]
        return tuple([weight.detach() for weight in weights])

    @staticmethod
    def backward(ctx, *grads):
        flat = grads[0].new_empty(flat_count(ctx.shapes, grads[0].dtype))
        torch._foreach_copy_(shaped_views(flat, ctx.shapes), list(grads))
        return tuple([None for _ in grads])


def planned(weights):
    items = [Item(weight.dtype, byte_count_of(weight)) for weight in weights]
    return plan_buckets(items, DEFAULT_POLICY.bucket_bytes, DEFAULT_POLICY.first_bucket_bytes)


def packed(model, x):
    named = dict(model.named_parameters())
    names, weights = list(named), [weight.detach().requires_grad_() for weight in named.values()]
    outputs = list(weights)
    for bucket in planned(weights):
        for i, output in zip(bucket, Pack.apply(*[weights[i] for i in bucket]), strict=True):
            outputs[i] = output
    return torch.func.functional_call(model, dict(zip(names, outputs, strict=True)), (x,))


def in_place(model, x):
    weights = list(model.parameters())
    if weights[0].grad is None:
        shapes = [shape_of(weight) for weight in weights]
        model.flat = torch.empty(flat_count(shapes, weights[0].dtype), device=x.device)
        for weight, view in zip(weights, shaped_views(model.flat, shapes), strict=True):
            weight.grad = view
            weight.register_post_accumulate_grad_hook(lambda _: None)
    model.flat.zero_()
    return model(x)


def main():
    (name,) = sys.argv[1:] or ["mlp/small"]
    print(heading("tests.cuda_stand_in.grads_in_place"))
    for way in (packed, in_place):
        workload = resolve(name, Data.RANDOM)
        torch.manual_seed(0)
        model: nn.Module = workload.model().to("cuda:0")
        x = workload.batch(ITEMS, torch.Generator().manual_seed(0)).inputs[0].to("cuda:0")
        for _ in range(2):
            way(model, x).sum().backward()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        before = control.counts()
        way(model, x).sum().backward()
        torch.cuda.synchronize()
        works = control.counts()["works"] - before["works"]
        peak = torch.cuda.max_memory_allocated()
        print(f"{name}, {way.__name__}: {works} kernels and copies; held between steps {held:,} bytes; peak {peak:,}")
        del model, x
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
