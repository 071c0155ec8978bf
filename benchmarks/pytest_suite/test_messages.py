"""Counts of messages: of a step beside the stock wrapper's, and by `bucket_bytes`.

The first come from simulated devices, the second from the plan of buckets, in which a bucket is one message to each
lane: larger buckets are fewer messages, but overlap less.
"""

from pathlib import Path

import pytest
import torch
from torch import nn

from benchmarks.pytest_suite import encoders
from dpbench.cases.case import Case
from dpbench.cases.variants import VariantName as V
from dpbench.jobs.count import count_all
from dpbench.parallel.layout import ALIGNMENT_BYTES, Item, plan_buckets
from dpbench.parallel.policy import DEFAULT_POLICY, MIB
from dpbench.records.count_record import CountRecord
from dpbench.records.record import Outcome

ROOT = Path(__file__).parents[2]
LANES = 4
OURS = ("tuned[route=star]", "tuned[route=chain,whole_buckets=true]", "tuned[route=chain]")
"""A chain sends a bucket in pieces, so that its links work at the same time: more messages, and no more bytes."""
TENSORS_OF_A_LAYER = 12


def between_devices(record: CountRecord) -> tuple[int, int]:
    """The messages of one step between devices, and their bytes."""
    links = [
        sent for phase in record.counts.phases.values() for link, sent in phase.copies.items() if "host" not in link
    ]
    return sum(sent.count for sent in links), sum(sent.size_bytes for sent in links)


@pytest.mark.parametrize("size", ["small", pytest.param("wide", marks=pytest.mark.whole)])
def test_messages_of_a_step(print_row, monkeypatch, size):
    monkeypatch.chdir(ROOT)  # the counting child imports the workload from here
    cases = [
        Case(
            variant=variant,
            workload=f"{encoders.__name__}:{size}",
            batch=LANES,
            devices=[f"sim:{i}" for i in range(LANES)],
            threads=1,
        )
        for variant in (*OURS, V.TORCH_DP, "tuned[route=star,coalesce=false]")
    ]
    records = count_all(cases, timeout_s=600)
    if skipped := [record.why for record in records if record.outcome is Outcome.SKIPPED]:
        pytest.skip(skipped[0])
    *ours, (of_stock, bytes_of_stock), (singly, _) = map(between_devices, records)
    for variant, (count, size_bytes) in zip(OURS, ours, strict=True):
        print_row(
            f"{f'{variant} / torch_dp':31} {count / of_stock:7.3f}  messages of a step: {count} for {of_stock}, bytes "
            f"{size_bytes / bytes_of_stock:.3f}; {encoders.LAYERS} encoder layers, {size}, {LANES} simulated devices"
        )
    gaps_bytes = 2 * (LANES - 1) * ALIGNMENT_BYTES * encoders.LAYERS * TENSORS_OF_A_LAYER
    for count, _ in ours[:2]:
        assert 0 < count <= of_stock
        assert count <= singly / 10
    for _, size_bytes in ours:
        assert bytes_of_stock <= size_bytes <= bytes_of_stock + gaps_bytes


@pytest.fixture(scope="module")
def items():
    """The tensors of 24 encoder layers, 512 wide, without memory for their values."""
    with torch.device("meta"):
        encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8), 24, enable_nested_tensor=False)
    return [Item(parameter.dtype, parameter.nbytes) for parameter in encoder.parameters()]


@pytest.mark.parametrize("bucket_mib", [1, 4, 10, 25, 100])
def test_messages_against_overlap(print_row, items, bucket_mib):
    buckets = plan_buckets(items, bucket_mib * MIB, DEFAULT_POLICY.first_bucket_bytes)
    first_bytes = sum(items[i].byte_count for i in buckets[0])
    assert sorted(i for bucket in buckets for i in bucket) == list(range(len(items)))
    print_row(
        f"bucket_bytes {bucket_mib:3} MiB: {len(buckets):3} messages per link and direction, the first of "
        f"{first_bytes / MIB:.1f} MiB; {len(items)} tensors, {sum(item.byte_count for item in items) / MIB:.0f} MiB"
    )
