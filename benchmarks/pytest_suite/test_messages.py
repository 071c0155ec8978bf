"""Messages against overlap over `bucket_bytes`: exact, from the plan; a bucket is one message to each lane."""

import pytest
import torch
from torch import nn

from dpbench.parallel.buckets import Item, plan_buckets
from dpbench.parallel.policy import DEFAULT_POLICY, MIB


@pytest.fixture(scope="module")
def items():
    """24 encoder layers 512 wide, without memory for the values."""
    with torch.device("meta"):
        encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8), 24, enable_nested_tensor=False)
    return [Item(parameter.dtype, parameter.nbytes) for parameter in encoder.parameters()]


@pytest.mark.parametrize("bucket_mib", [1, 4, 10, 25, 100])
def test_messages(print_row, items, bucket_mib):
    buckets = plan_buckets(items, bucket_mib * MIB, DEFAULT_POLICY.first_bucket_bytes)
    first_bytes = sum(items[i].byte_count for i in buckets[0])
    assert sorted(i for bucket in buckets for i in bucket) == list(range(len(items)))
    print_row(
        f"bucket_bytes {bucket_mib:3} MiB: {len(buckets):3} messages per link and direction, the first of "
        f"{first_bytes / MIB:.1f} MiB; {len(items)} tensors, {sum(item.byte_count for item in items) / MIB:.0f} MiB"
    )
