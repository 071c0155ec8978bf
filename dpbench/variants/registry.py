"""Find the scheme of a variant id."""

from dataclasses import replace
from functools import partial
from importlib import import_module

from dpbench.sweep.variants import VariantId
from dpbench.variants.variant import Variant


def variant_of(variant: VariantId) -> Variant:
    """Return the scheme. The parameters in the id are bound to its `wrap`."""
    module, _, attribute = variant.name.wrapper.partition(":")
    found: Variant = getattr(import_module(f"dpbench.variants.{module}"), attribute)
    return replace(found, wrap=partial(found.wrap, **variant.values)) if variant.values else found
