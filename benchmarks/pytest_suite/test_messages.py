"""Counts of messages: of a step beside the stock wrapper's, and by `bucket_bytes`.

The counts are exact on any machine. The first come from simulated devices. The second come from the plan of buckets, in
which a bucket is one message to each lane: larger buckets are fewer messages, but overlap less.
"""

from pathlib import Path

import pytest
import torch
from torch import nn

from benchmarks.pytest_suite import encoders
from dpbench.cases.case import Case
from dpbench.cases.variants import VariantName as V
from dpbench.parallel.buckets import Item, plan_buckets
from dpbench.parallel.policy import DEFAULT_POLICY, MIB
from dpbench.processes.count_all import count_all
from dpbench.records.counts import CountRecord
from dpbench.records.record import Outcome

ROOT = Path(__file__).parents[2]
LANES = 4


def between_devices(record: CountRecord) -> tuple[int, int]:
    """Return the messages of one step between devices, and their bytes."""
    links = [
        sent for phase in record.counts.phases.values() for link, sent in phase.copies.items() if "host" not in link
    ]
    return sum(sent.count for sent in links), sum(sent.size_bytes for sent in links)


@pytest.mark.parametrize("size", ["small", "wide"])
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
        for variant in (V.TUNED, V.TORCH_DP, "tuned[coalesce=false]")
    ]
    records = count_all(cases, timeout_s=600)
    if skipped := [record.why for record in records if record.outcome is Outcome.SKIPPED]:
        pytest.skip(skipped[0])
    (ours, our_bytes), *others = map(between_devices, records)
    for case, (theirs, their_bytes) in zip(cases[1:], others, strict=True):
        print_row(
            f"{f'tuned / {case.variant}':31} {ours / theirs:7.3f}  messages of a step: {ours} for {theirs}, "
            f"bytes {our_bytes / their_bytes:.3f}; {encoders.LAYERS} encoder layers, {size}, {LANES} simulated devices"
        )
    (of_stock, bytes_of_stock), (singly, _) = others
    assert 0 < ours <= of_stock
    assert ours <= singly / 10
    assert our_bytes <= bytes_of_stock


@pytest.fixture(scope="module")
def items():
    """Return the tensors of 24 encoder layers, 512 wide, without memory for their values."""
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
