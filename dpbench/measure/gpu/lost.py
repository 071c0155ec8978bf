"""A case that failed: was it a GPU that went, and not the case?"""

from collections.abc import Mapping, Sequence

import pynvml
import torch

from dpbench.measure.gpu.facts import uuids_of
from dpbench.measure.gpu.nvml import LostGpuError, NotOfferedError, ask, find_gpu, start
from dpbench.results.record import line_on_lost_gpu


def why_lost(error: BaseException, devices: Sequence[str]) -> str | None:
    """What says that a GPU of the case is lost: the error itself, or NVML when asked; None for other faults."""
    if isinstance(error, LostGpuError):
        return str(error)
    if line := line_on_lost_gpu(str(error)):
        return line
    try:
        gone = lost_among(uuids_of([torch.device(device) for device in devices]))
    except (RuntimeError, NotOfferedError):  # neither CUDA nor NVML answers any more; nobody can say
        return None
    return None if gone is None else f"{gone}; {(str(error).splitlines() or [type(error).__name__])[0]}"


def lost_among(uuids: Mapping[str, str]) -> str | None:
    """The first of these GPUs, torch's names and bare UUIDs, that does not answer, and how NVML puts it."""
    if uuids:
        start()
    for device, uuid in uuids.items():
        try:
            # A property that NVML does not remember but has to ask the GPU for.
            ask(pynvml.nvmlDeviceGetMemoryInfo, find_gpu(device, uuid).handle)
        except LostGpuError as error:
            return f"{device}: {error}"
        except NotOfferedError:
            continue
    return None
