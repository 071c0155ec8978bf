"""Only these files import torch and NVML; host.py does not."""
