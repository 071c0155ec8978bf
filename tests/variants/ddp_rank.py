"""One rank of test_ddp: `python -m tests.variants.ddp_rank WORKLOAD BATCH RANK RANKS FILE`.

Asserts that the rank's output is the plain module's for its own chunk. Asserts that the gradients are the mean over the
ranks of each chunk's gradients. Prints the rank and the number of gradients as JSON.
"""

import copy
import json
import sys
from datetime import timedelta

from torch import distributed

from dpbench.cases.variants import VariantId, VariantName
from dpbench.variants.registry import variant_of
from dpbench.workloads.workload import Batch
from tests.variants.chunked import CPU, assert_same, chunked, finish, make


def main(name: str, batch: str, rank: int, ranks: int, store: str) -> None:
    distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=ranks, timeout=timedelta(seconds=60)
    )
    workload, base, drawn = make(name, int(batch))
    chunks = [
        Batch(tuple(inputs), target)
        for *inputs, target in zip(*(x.chunk(ranks) for x in (*drawn.inputs, drawn.target)), strict=True)
    ]
    plain = [chunked(workload, base, chunk, lanes=1) for chunk in chunks]
    expected = copy.copy(plain[rank])
    expected.gradients = {key: sum(s.gradients[key] for s in plain) / ranks for key in expected.gradients}
    forward = variant_of(VariantId(VariantName.DDP)).wrap(base, [CPU])
    step = finish(workload, base, forward(*chunks[rank].inputs), chunks[rank].target)
    assert_same(step, expected)
    distributed.barrier()
    distributed.destroy_process_group()
    sys.stdout.write(json.dumps({"rank": rank, "gradients": len(step.gradients)}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
