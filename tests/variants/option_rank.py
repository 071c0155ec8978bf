"""One rank of test_rank_options: `python -m tests.variants.option_rank RANK RANKS FILE`.

Prints for each variant the relative error against the oracle, and the time of the collectives of a step, as JSON.
"""

import json
import sys
from datetime import timedelta

from torch import distributed

from dpbench.cases.case import Case
from dpbench.measure.fairness import error_against_oracle
from dpbench.measure.ranks.collectives import collectives_of
from dpbench.measure.session import open_session

CASES = {
    "convnet/tiny": ["ddp", "ddp[accumulate=2,bucket_cap_mb=0.01]", "ddp[accumulate=3]", "fsdp"],
    "transformer/tiny": ["ddp", "ddp[hook=fp16]", "ddp[gradient_as_bucket_view=true,static_graph=true]", "fsdp"],
    "embedding_sparse/tiny": ["ddp", "ddp[accumulate=2]"],
}


def main(rank: int, ranks: int, store: str) -> None:
    distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=ranks, timeout=timedelta(seconds=60)
    )
    results = {}
    for workload, variants in CASES.items():
        for variant in variants:
            # Three micro-batches of 5 items on a rank have different sizes.
            case = Case(variant=variant, workload=workload, batch=10, devices=("cpu",) * ranks, threads=1)
            error = error_against_oracle(open_session(case, rank, ranks)).error
            results[f"{variant} {workload}"] = {"error": error, **collectives_of(open_session(case, rank, ranks), 1)}
    distributed.barrier()
    distributed.destroy_process_group()
    sys.stdout.write(json.dumps(results))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
