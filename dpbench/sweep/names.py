"""The closed vocabulary of specs, case ids and records."""

from enum import StrEnum


class VariantName(StrEnum):
    """A way to run one training step on several devices."""

    SINGLE = "single"
    TORCH_DP = "torch_dp"
    NAIVE = "naive"
    FLOOR = "floor"
    TUNED = "tuned"
    DDP = "ddp"
    TUNED_NO_CACHE_REPLICAS = "tuned_no_cache_replicas"
    TUNED_NO_COALESCE = "tuned_no_coalesce"
    TUNED_NO_OVERLAP_BROADCAST = "tuned_no_overlap_broadcast"
    TUNED_NO_OVERLAP_REDUCE = "tuned_no_overlap_reduce"
    TUNED_NO_OVERLAP_COPIES = "tuned_no_overlap_copies"
    TUNED_THREADS = "tuned_threads"
    TUNED_SEQUENCE = "tuned_sequence"
    TUNED_SKIP_UNCHANGED = "tuned_skip_unchanged"
    TUNED_HOST_STAGED = "tuned_host_staged"


SCHEMES = tuple(name for name in VariantName if not name.startswith("tuned_"))
"""What is compared unless somebody asks for more: every scheme, without the tuned one's ablations."""


class Family(StrEnum):
    """A kind of model; with a `Size` it names a workload, as in ``mlp/small``.

    EMBEDDING_SPARSE is EMBEDDING with sparse gradients.
    """

    MLP = "mlp"
    CONVNET = "convnet"
    TRANSFORMER = "transformer"
    EMBEDDING = "embedding"
    EMBEDDING_SPARSE = "embedding_sparse"


class Size(StrEnum):
    TINY = "tiny"
    SMALL = "small"
    BASE = "base"
    LARGE = "large"


class Mode(StrEnum):
    """TRAIN is zero_grad, forward, loss, backward, optimiser step; INFER is forward under no_grad."""

    TRAIN = "train"
    INFER = "infer"


class Dtype(StrEnum):
    """Of parameters and floating-point inputs."""

    FLOAT32 = "float32"
    FLOAT64 = "float64"
    BFLOAT16 = "bfloat16"


class Data(StrEnum):
    """RANDOM is drawn from the case's seed; DIGITS is scikit-learn's 1,797 bundled 8x8 images."""

    RANDOM = "random"
    DIGITS = "digits"
