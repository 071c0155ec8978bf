"""The schemes that dpbench compares: ways to run one training step on several devices.

    variant.py          the interface, and the schemes of a few lines: single, torch_dp, tuned
    per_rank.py         ddp, DistributedDataParallel with its options; fsdp, fully_shard with the blocks that it shards
    naive.py            the stock algorithm of torch.nn.DataParallel in plain Python; floor: its work without a scheme
    registry.py         from a variant's id to the scheme; a user's callable as a variant

The names, sentences and parameters of all variants are in dpbench/cases/variants.py, which does not import torch.
"""
