"""The children of the room. Only these files import torch and NVML, the host's examination not even these."""
