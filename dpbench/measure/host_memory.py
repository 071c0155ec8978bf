"""Host memory that a step frees stays with the process, as in a training script that has read its data.

glibc hands the free end of the heap back to the kernel as soon as it is longer than a threshold, 128 KiB at first,
and the next step takes it again page by page: 1,200 page faults, a twentieth of the time of some steps, and of other
schemes' none. The threshold grows with the largest block that was mapped by itself and freed, up to a limit
(mallopt(3), M_MMAP_THRESHOLD and M_TRIM_THRESHOLD), so it would depend on what a process happened to do before.
"""

import torch

_BLOCK_BYTES = 31 * 2**20
"""Just below the limit on 64-bit machines, 32 MiB; from then on up to twice as much stays."""


def settle_host_memory() -> None:
    """Brings glibc's thresholds to where a larger program has them. The block is never touched: it costs no memory."""
    torch.empty(_BLOCK_BYTES, dtype=torch.uint8)
