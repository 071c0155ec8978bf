"""Only these files import torch and NVML; host_findings.py does not."""
