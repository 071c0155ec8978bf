"""A drop-in for ``torch.nn.parallel``'s DataParallel; the README has the picture."""

from dpbench.parallel.apply import parallel_apply
from dpbench.parallel.gather import gather
from dpbench.parallel.loss import with_loss
from dpbench.parallel.module import DataParallel, data_parallel
from dpbench.parallel.policy import Policy
from dpbench.parallel.replicas import replicate
from dpbench.parallel.scatter import chunk_weights, scatter, scatter_kwargs

__all__ = [
    "DataParallel",
    "Policy",
    "chunk_weights",
    "data_parallel",
    "gather",
    "parallel_apply",
    "replicate",
    "scatter",
    "scatter_kwargs",
    "with_loss",
]
