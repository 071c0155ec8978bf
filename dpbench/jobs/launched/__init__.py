"""Several machines: the user's launcher starts one dpbench for each rank, and they measure one sweep together.

    world.py      from the launcher's environment variables to a rank and its place
    agreement.py  what all ranks must have in common
    lead.py       rank 0 leads, and the others follow
    on_all_ranks.py  alone, as rank 0 or as another rank; the cases on one and on all machines

    rank 0 (lead)                         rank 1 ... n-1 (follow)
      │  <── hello: versions, spec ───────  │
      │  ──── job, address, port ────────>  │         for each case with ranks, a child on every rank:
      ├══> child, rank 0                    ├══> child, rank k           torch.distributed connects the children
      │  <── outcome, reason ─────────────  │
      │  ──── stop ──────────────────────>  │         at once if a rank failed, else after all reports
      │  ──── end, exit code ────────────>  │

A case without ranks runs on rank 0 alone; the others wait.
"""
