"""Find out whether a case failed because a GPU was lost.

A GPU is lost when it has fallen off the bus, or when it cannot be used until it is reset. Then the case is not at
fault: its record gets the outcome ``lost_gpu``, and the case may be measured again.
"""

from collections.abc import Mapping, Sequence

import pynvml
import torch

from dpbench.measure.gpu.facts import uuids_of
from dpbench.measure.gpu.nvml import LostGpuError, NotOfferedError, ask, find_gpu, start
from dpbench.results.record import line_on_lost_gpu


def why_lost(error: BaseException, devices: Sequence[str]) -> str | None:
    """Return the reason if a GPU of the case is lost, else None.

    The reason is in the text of `error`, or NVML reports it.
    """
    if isinstance(error, LostGpuError):
        return str(error)
    if line := line_on_lost_gpu(str(error)):
        return line
    try:
        lost = lost_among(uuids_of([torch.device(device) for device in devices]))
    except (RuntimeError, NotOfferedError):  # neither CUDA nor NVML works any more, so the cause stays unknown
        return None
    return None if lost is None else f"{lost}; {(str(error).splitlines() or [type(error).__name__])[0]}"


def lost_among(uuids: Mapping[str, str]) -> str | None:
    """Return the first lost GPU and NVML's error, or None.

    `uuids` has bare UUIDs by torch's names. Raises NotOfferedError if NVML cannot be started.
    """
    if uuids:
        start()
    for device, uuid in uuids.items():
        try:
            # NVML does not cache the memory in use, so it has to read it from the GPU.
            ask(pynvml.nvmlDeviceGetMemoryInfo, find_gpu(device, uuid).handle)
        except LostGpuError as error:
            return f"{device}: {error}"
        except NotOfferedError:
            continue
    return None
