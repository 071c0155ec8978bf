"""Find the scheme of a variant id."""

from dataclasses import replace
from functools import partial
from importlib import import_module

from dpbench.cases.variants import OwnName, VariantId
from dpbench.variants.own import own_variant
from dpbench.variants.variant import Variant


def variant_of(variant: VariantId) -> Variant:
    """Return the scheme. The parameters in the id are bound to its `wrap`.

    But `accumulate` sets its micro-batches, and `loss` where the loss is computed. Raises WorkloadError for a user's
    callable that cannot be loaded.
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
