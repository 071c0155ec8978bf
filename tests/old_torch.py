"""What tests need that the oldest torch dpbench allows does not have."""

import re

import pytest
import torch

_RELEASE = tuple(map(int, re.findall(r"\d+", torch.__version__)[:2]))
HIDES_OPERATIONS = _RELEASE < (2, 10)
needs_operations = pytest.mark.skipif(
    HIDES_OPERATIONS, reason=f"torch {torch.__version__} hides the operation of a reduction; needs 2.10"
)
