"""From a variant's id to its scheme: one of dpbench, or the user's callable, in the child that runs it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

import torch
from torch import nn

from dpbench.cases.variants import OwnName, VariantId
from dpbench.variants.variant import Forward, Variant
from dpbench.workloads.resolve import attempt, current_directory_importable, kind_of, load
from dpbench.workloads.workload import WorkloadError

_PER_RANK = "__dpbench_per_rank__"
F = TypeVar("F", bound=Callable[..., Any])


def variant(*, per_rank: bool = False) -> Callable[[F], F]:
    """Mark a callable as a variant.

    With `per_rank` each device has a process, torch.distributed is set up, and `devices` has the one device of the
    rank. Otherwise one process serves all devices.
    """

    def mark(function: F) -> F:
        setattr(function, _PER_RANK, per_rank)
        return function

    return mark


def own_variant(name: VariantId) -> Variant:
    """Import the user's callable; raise WorkloadError."""
    named = f"variants: {str(name)!r}"
    with current_directory_importable():
        function = load(named, name.name)
    if not callable(function):
        raise WorkloadError(f"{named}: is {kind_of(function)}; a callable with (model, devices) is allowed")

    def wrap(base: nn.Module, devices: Sequence[torch.device]) -> Forward:
        before = dict(base.named_parameters())
        with current_directory_importable():
            scheme = attempt(named, "the call with (model, devices)", lambda: function(base, devices, **name.arguments))
        if not callable(scheme):
            what = "what is called with the batch is allowed"
            raise WorkloadError(f"{named}: returned {kind_of(scheme)}; {what}")
        if lost := before.keys() - dict(base.named_parameters()).keys():  # so nothing says whether gradients are right
            what = "a wrapper that leaves the model's parameters in it is allowed"
            raise WorkloadError(f"{named}: took {len(lost)} parameters out of the model, such as {min(lost)}; {what}")
        return scheme

    return Variant(wrap, per_rank=bool(getattr(function, _PER_RANK, False)))


def _compiled(
    wrap: Callable[..., Forward], mode: str, base: nn.Module, devices: list[torch.device], **options: Any
) -> Forward:
    """Compile the model, then wrap it.

    `torch.compile(DistributedDataParallel(model))` of torch's docs compiles nothing of an `nn.Sequential`, and the
    wrapper's own Python beside the model. In both orders Dynamo splits graphs where buckets of gradients end:
    DDPOptimizer asks for the wrapper whose forward runs (torch/_dynamo/convert_frame.py, torch 2.13).
    """
    # Behind its limit of recompilations Dynamo would go on in Python.
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    return wrap(torch.compile(base, mode=mode), devices, **options)


def variant_of(variant: VariantId) -> Variant:
    """The id's parameters are bound to `wrap`, but for `accumulate`, `loss` and `compile`.

    Raise WorkloadError for a callable that cannot be loaded.
    """
    if isinstance(variant.name, OwnName):
        return own_variant(variant)
    module, _, attribute = variant.name.wrapper.partition(":")
    scheme: Variant = getattr(import_module(f"dpbench.variants.{module}"), attribute)
    values = dict(variant.values)
    micro_batches = int(values.pop("accumulate", 1))
    has_loss = values.pop("loss", "outputs") == "replicas"
    mode = values.pop("compile", None)
    wrap = partial(scheme.wrap, **values) if values else scheme.wrap
    if mode is not None:
        # In one process compiled lanes run one after the other (COMPILED.md), so each may have all threads.
        scheme = replace(scheme, concurrent_lanes=scheme.per_rank)
        wrap = partial(_compiled, wrap, str(mode))
    return replace(scheme, wrap=wrap, micro_batches=micro_batches, has_loss=has_loss)
