"""Every variant by its name."""

from dpbench.sweep.names import VariantName
from dpbench.variants.base import Variant
from dpbench.variants.ddp import DDP
from dpbench.variants.floor import FLOOR
from dpbench.variants.naive import NAIVE
from dpbench.variants.single import SINGLE
from dpbench.variants.torch_dp import TORCH_DP
from dpbench.variants.tuned import TUNED, tuned_with

VARIANTS: dict[VariantName, Variant] = {
    VariantName.SINGLE: SINGLE,
    VariantName.TORCH_DP: TORCH_DP,
    VariantName.NAIVE: NAIVE,
    VariantName.FLOOR: FLOOR,
    VariantName.TUNED: TUNED,
    VariantName.DDP: DDP,
    VariantName.TUNED_NO_CACHE_REPLICAS: tuned_with(cache_replicas=False),
    VariantName.TUNED_NO_COALESCE: tuned_with(coalesce=False),
    VariantName.TUNED_NO_OVERLAP_BROADCAST: tuned_with(overlap_broadcast=False),
    VariantName.TUNED_NO_OVERLAP_REDUCE: tuned_with(overlap_reduce=False),
    VariantName.TUNED_NO_OVERLAP_COPIES: tuned_with(overlap_copies=False),
    VariantName.TUNED_THREADS: tuned_with(dispatch="threads"),
    VariantName.TUNED_SEQUENCE: tuned_with(dispatch="sequence"),
    VariantName.TUNED_SKIP_UNCHANGED: tuned_with(skip_unchanged=True),
    VariantName.TUNED_HOST_STAGED: tuned_with(host_staged=True),
}
