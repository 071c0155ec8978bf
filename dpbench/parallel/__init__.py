"""A drop-in for ``torch.nn.parallel``'s DataParallel."""

from dpbench.parallel.apply import parallel_apply
from dpbench.parallel.module import DataParallel, data_parallel, with_loss
from dpbench.parallel.policy import Policy
from dpbench.parallel.replicas import replicate
from dpbench.parallel.scatter_gather import chunk_weights, gather, scatter, scatter_kwargs

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
