"""Every variant by its name."""

from dpbench.sweep.names import VariantName
from dpbench.variants.base import Variant
from dpbench.variants.ddp import DDP
from dpbench.variants.floor import FLOOR
from dpbench.variants.naive import NAIVE
from dpbench.variants.single import SINGLE
from dpbench.variants.torch_dp import TORCH_DP
from dpbench.variants.tuned import TUNED

VARIANTS: dict[VariantName, Variant] = {
    VariantName.SINGLE: SINGLE,
    VariantName.TORCH_DP: TORCH_DP,
    VariantName.NAIVE: NAIVE,
    VariantName.FLOOR: FLOOR,
    VariantName.TUNED: TUNED,
    VariantName.DDP: DDP,
}
