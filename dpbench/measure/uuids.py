"""What torch and NVML both call a GPU by: its UUID. Its numbers differ; CUDA_VISIBLE_DEVICES moves torch's alone."""

from collections.abc import Sequence

import torch


def uuids_of(devices: Sequence[torch.device]) -> dict[str, str]:
    """The bare UUIDs, without NVML's GPU- or MIG-, of the NVIDIA GPUs among the devices, by torch's name."""
    if torch.version.cuda is None:
        return {}
    gpus = dict.fromkeys(device for device in devices if device.type == "cuda")
    return {str(gpu): str(torch.cuda.get_device_properties(gpu).uuid) for gpu in gpus}
