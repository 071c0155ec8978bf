"""The schemes that dpbench compares: ways to run one training step on several devices.

    variant.py          the interface, and the schemes of a few lines: single, torch_dp, tuned
    ddp.py              DistributedDataParallel with its options
    fsdp.py             fully_shard, with the blocks that it shards
    floor.py            the work of all lanes without a scheme: a lower bound for the step time
    naive.py            the stock algorithm of torch.nn.DataParallel in plain Python
    own.py              a user's callable as a variant
    registry.py         from a variant's id to the scheme

The names, sentences and parameters of all variants are in dpbench/cases/variants.py, which does not import torch.
"""
