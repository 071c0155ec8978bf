"""The words by which CUDA, NVML and the kernel say that a GPU is gone, or useless until it is reset."""

_WORDS = (
    "GPU is lost",  # NVML_ERROR_GPU_IS_LOST
    "GPU requires restart",  # NVML_ERROR_RESET_REQUIRED
    "fallen off the bus",  # the driver's Xid 79
    "no CUDA-capable device is detected",  # cudaErrorNoDevice; the case was planned for a GPU that was there
    "uncorrectable ECC error encountered",  # cudaErrorECCUncorrectable
    "uncorrectable NVLink error detected",  # cudaErrorNvlinkUncorrectable
)


def says_gpu_is_lost(text: str) -> bool:
    return any(words in text for words in _WORDS)
