"""The modules of a process that has imported torch, and of dpbench little else."""

import sys

import torch  # noqa: F401  # its modules are read below

WITH_TORCH = frozenset(sys.modules)
"""The child that counts imports this module before all else that has torch."""
