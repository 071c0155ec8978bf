"""From a variant's name and parameters to the scheme that runs."""

from dataclasses import replace
from functools import partial
from importlib import import_module

from dpbench.sweep.variants import VariantId
from dpbench.variants.variant import Variant


def variant_of(variant: VariantId) -> Variant:
    """Return the scheme, with the variant's parameters bound to its `wrap`."""
    module, _, attribute = variant.name.wrapper.partition(":")
    found: Variant = getattr(import_module(f"dpbench.variants.{module}"), attribute)
    return replace(found, wrap=partial(found.wrap, **variant.values)) if variant.values else found
