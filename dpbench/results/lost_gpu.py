"""The words by which CUDA, NVML and the kernel say that a GPU is gone, or useless until it is reset."""

_WORDS = (
    "GPU is lost",  # NVML_ERROR_GPU_IS_LOST
    "GPU requires restart",  # NVML_ERROR_RESET_REQUIRED
    "fallen off the bus",  # the driver's Xid 79
    "no CUDA-capable device is detected",  # cudaErrorNoDevice; the case was planned for a GPU that was there
    "uncorrectable ECC error encountered",  # cudaErrorECCUncorrectable
    "uncorrectable NVLink error detected",  # cudaErrorNvlinkUncorrectable
)


def line_on_lost_gpu(text: str) -> str | None:
    """The first line that says so."""
    return next((line.strip() for line in text.splitlines() if any(words in line for words in _WORDS)), None)
