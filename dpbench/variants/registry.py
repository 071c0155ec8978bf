"""From a variant's id to its scheme."""

from dataclasses import replace
from functools import partial
from importlib import import_module

from dpbench.cases.variants import OwnName, VariantId
from dpbench.variants.own import own_variant
from dpbench.variants.variant import Variant


def variant_of(variant: VariantId) -> Variant:
    """The id's parameters are bound to `wrap`, but for `accumulate` and `loss`, which decide micro-batches and where
    the loss is computed.

    Raises WorkloadError for a callable that cannot be loaded.
    """
    if isinstance(variant.name, OwnName):
        return own_variant(variant)
    module, _, attribute = variant.name.wrapper.partition(":")
    found: Variant = getattr(import_module(f"dpbench.variants.{module}"), attribute)
    values = dict(variant.values)
    micro_batches = int(values.pop("accumulate", 1))
    has_loss = values.pop("loss", "outputs") == "replicas"
    wrap = partial(found.wrap, **values) if values else found.wrap
    return replace(found, wrap=wrap, micro_batches=micro_batches, has_loss=has_loss)
